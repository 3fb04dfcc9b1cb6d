//! Streams, and the events recorded on them.
//!
//! Thread rule: any thread queues. Non-goals: holding the memory that copies read; the pump does.

#![expect(unsafe_code, reason = "copies between addresses, and streams that the program owns")]

use std::{
    any::Any, ffi::c_void, ptr::with_exposed_provenance_mut, sync::Arc, thread, time::Duration,
};

use cudarc::driver::{CudaEvent, CudaStream, result, sys};

use super::{Cuda, Guarded, State, thread::Entered};
use crate::{
    Error, ErrorKind,
    device::{ConsumerStream, Event, Moment, Stream, Transfer, planted},
};

/// How often a thread that waits for an event checks it.
const LOOK: Duration = Duration::from_micros(100);

struct OnCuda {
    stream: Guarded<Arc<CudaStream>>,
    state: Arc<State>,
    /// Whether one call queues many copies.
    copies_batches: bool,
}

struct Recorded {
    event: Guarded<CudaEvent>,
    state: Arc<State>,
}

impl Cuda {
    pub(super) fn new_stream(&self) -> Result<Box<dyn Stream>, Error> {
        let stream = self.enter()?.new_stream();
        let stream = self.did("cuStreamCreate", stream)?;
        Ok(self.on(stream, self.copies_batches))
    }

    pub(super) fn borrow_stream(
        &self,
        ConsumerStream(handle): ConsumerStream,
    ) -> Result<Box<dyn Stream>, Error> {
        let Some(handle) = usize::try_from(handle).ok().filter(|&handle| handle != 0) else {
            let what = format!("{handle} is no stream");
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .hint("say 1 for the default stream, as DLPack does"));
        };
        self.state.check()?;
        // SAFETY: the program says that it is a stream of this device, and keeps it while it has
        // work with batches on it. The caller is responsible for the order of that work.
        let stream =
            unsafe { self.context.wrap_borrowed_stream(with_exposed_provenance_mut(handle)) };
        Ok(self.on(stream, false))
    }

    fn on(&self, stream: Arc<CudaStream>, copies_batches: bool) -> Box<dyn Stream> {
        let (stream, state) = (Guarded::new(stream, &self.state), Arc::clone(&self.state));
        Box::new(OnCuda { stream, state, copies_batches })
    }
}

impl OnCuda {
    fn enter(&self) -> Result<Entered<'_>, Error> {
        Entered::new(self.stream.context(), &self.state)
    }

    fn copy_each(&self, transfer: &Transfer) -> Result<(), Error> {
        for run in &transfer.runs {
            let bytes = transfer.bytes(run);
            // SAFETY: the device addresses are those of a block, and the caller holds the source
            // memory until an event after this is done.
            let queued =
                unsafe { result::memcpy_htod_async(run.to, bytes, self.stream.cu_stream()) };
            self.state.did("cuMemcpyHtoDAsync", queued)?;
        }
        Ok(())
    }

    /// Queues all runs in one call.
    fn copy_together(&self, transfer: &Transfer) -> Result<(), Error> {
        let runs = || transfer.runs.iter();
        let mut to: Vec<sys::CUdeviceptr> = runs().map(|run| run.to).collect();
        let mut from: Vec<sys::CUdeviceptr> = runs()
            .map(|run| transfer.bytes(run).as_ptr().expose_provenance() as sys::CUdeviceptr)
            .collect();
        let mut sizes: Vec<usize> = runs().map(|run| run.from.len()).collect();
        // SAFETY: a structure of numbers, for which zeros are valid: "no hint".
        let mut attributes: sys::CUmemcpyAttributes = unsafe { std::mem::zeroed() };
        attributes.srcAccessOrder =
            sys::CUmemcpySrcAccessOrder_enum::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        let (mut first, mut failed) = (0usize, 0usize);
        // SAFETY: the arrays have as many entries as there are runs, and are read during the call.
        // Addresses as in `copy_each`.
        let queued = unsafe {
            sys::cuMemcpyBatchAsync(
                to.as_mut_ptr(),
                from.as_mut_ptr(),
                sizes.as_mut_ptr(),
                to.len(),
                &raw mut attributes,
                &raw mut first,
                1,
                &raw mut failed,
                self.stream.cu_stream(),
            )
        };
        self.state.did("cuMemcpyBatchAsync", queued.result())
    }

    fn recorded(&self) -> Result<Arc<Recorded>, Error> {
        let event = self.state.did("cuEventRecord", self.stream.record_event(None))?;
        let (event, state) = (Guarded::new(event, &self.state), Arc::clone(&self.state));
        Ok(Arc::new(Recorded { event, state }))
    }
}

impl Stream for OnCuda {
    fn number(&self) -> ConsumerStream {
        ConsumerStream(self.stream.cu_stream().cast::<c_void>().expose_provenance() as u64)
    }

    fn copy(&self, transfer: &Arc<Transfer>) -> Result<(), Error> {
        let _entered = self.enter()?;
        match self.copies_batches && transfer.runs.len() > 1 {
            true => self.copy_together(transfer),
            false => self.copy_each(transfer),
        }
    }

    fn record(&self) -> Result<Event, Error> {
        let _entered = self.enter()?;
        Ok(self.recorded()?)
    }

    fn wait(&self, event: &Event) -> Result<(), Error> {
        let _entered = self.enter()?;
        let event: &dyn Any = &**event;
        let recorded: &Recorded = event.downcast_ref().expect("an event of the same driver");
        self.state.did("cuStreamWaitEvent", self.stream.wait(&recorded.event))
    }

    fn read(&self, from: u64, out: &mut [u8]) -> Result<(), Error> {
        let _entered = self.enter()?;
        // SAFETY: the addresses are those of a block, and `out` is borrowed until the copy is done.
        let queued = unsafe { result::memcpy_dtoh_async(out, from, self.stream.cu_stream()) };
        self.state.did("cuMemcpyDtoHAsync", queued)?;
        let done = self.recorded()?;
        while !done.is_done()? {
            thread::park_timeout(LOOK);
        }
        Ok(())
    }
}

impl Moment for Recorded {
    fn is_done(&self) -> Result<bool, Error> {
        self.state.check()?;
        if planted::is(planted::HOLD_NOTHING) {
            return Ok(true);
        }
        if planted::is(planted::IS_COMPLETE_POLLED) {
            return Ok(self.event.is_complete());
        }
        self.state.did("cuEventQuery", self.event.try_is_complete())
    }
}

const _: () = assert!(size_of::<usize>() == size_of::<u64>());
