//! Iterators that one thread at a time advances.
//!
//! If two threads advance a generator, Python raises in one of them. Without a GIL it may end the
//! program instead.
//!
//! A batch passes this iterator last on its way to the loop. The iterator is native, because signal
//! handlers run between two steps of Python, and there are none here. So a `for` loop has every
//! batch that is counted, even if Ctrl-C ends the loop. (After a call of `next`, Python checks for
//! signals once more.)
//!
//! Thread rule: any thread may ask. If another thread already waits, that is an error. No thread
//! waits for another one here, so a child that is forked meanwhile does not wait either.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::{
    PyTraverseError, PyVisit, exceptions::PyRuntimeError, intern, prelude::*, types::PyIterator,
};

/// The items of a generator, for one thread at a time. It is closed with its last reference.
#[pyclass(frozen, generic, module = "larder._larder")]
pub(crate) struct Iteration {
    items: Py<PyIterator>,
    /// An object that gets the state of each item that is handed out, as its `state`.
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

    /// Ends the iteration: no more items come.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let _alone = Alone::begin(&self.busy)?;
        self.items.bind(py).call_method0(intern!(py, "close")).map(drop)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.items)?;
        visit.call(&self.turn)
    }
}

/// Makes this thread the only one at work, until it is dropped.
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
