//! Iterators that one thread at a time advances.
//!
//! A generator that two threads advance raises in one of them; without a GIL it may end the program
//! instead.
//!
//! It is the last thing that a batch passes on its way to the loop, and it is native so that
//! nothing comes between: a signal handler runs between two steps of Python's, and there are none
//! here. So a batch that is counted is one that a `for` loop has, also where Ctrl-C ends it. (After
//! a call of `next` Python looks for signals once more.)
//!
//! Thread rule: any thread may ask; if another one is waiting already, that is an error. Nobody
//! waits, so a child that is forked meanwhile does not either.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::{
    PyTraverseError, PyVisit, exceptions::PyRuntimeError, intern, prelude::*, types::PyIterator,
};

/// What a generator brings, to one thread at a time; closed when nobody has it any more.
#[pyclass(frozen, generic, module = "larder._larder")]
pub(crate) struct Iteration {
    items: Py<PyIterator>,
    /// What is told of each item that is handed out: its `state` becomes the item's.
    turn: Option<Py<PyAny>>,
    busy: AtomicBool,
}

#[pymethods]
impl Iteration {
    #[new]
    fn new(items: Py<PyIterator>, turn: Option<Py<PyAny>>) -> Self {
        Self { items, turn, busy: AtomicBool::new(false) }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _alone = Alone::begin(&self.busy)?;
        let Some(item) = self.items.bind(py).clone().next().transpose()? else { return Ok(None) };
        if let Some(turn) = &self.turn {
            // Plain attributes: neither runs any Python.
            let state = item.getattr(intern!(py, "_state"))?;
            turn.bind(py).setattr(intern!(py, "state"), state)?;
        }
        Ok(Some(item))
    }

    /// Ends it: nothing more comes.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let _alone = Alone::begin(&self.busy)?;
        self.items.bind(py).call_method0(intern!(py, "close")).map(drop)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.items)?;
        visit.call(&self.turn)
    }
}

/// That this thread is the only one at work, until it is dropped.
struct Alone<'a>(&'a AtomicBool);

impl<'a> Alone<'a> {
    fn begin(busy: &'a AtomicBool) -> PyResult<Self> {
        if busy.swap(true, Ordering::Acquire) {
            return Err(PyRuntimeError::new_err(
                "another thread is waiting for the next item of this iteration: iterate it in one thread, \
                 or begin an iteration in each",
            ));
        }
        Ok(Self(busy))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
