//! The unix socket of a scripted node. It hands out all shards.

use std::os::{
    fd::AsFd,
    unix::net::{UnixListener, UnixStream},
};

use larder_extent::socket::send_with_fds;
use larder_wire::data::{Attach, Attached};

use super::*;

impl State {
    pub(super) fn accept_local(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            let (own, stream) = (Arc::clone(self), stream.unwrap());
            thread::spawn(move || own.talk_local(stream));
        }
    }

    fn talk_local(&self, mut stream: UnixStream) -> Option<()> {
        hello(&mut stream, self)?;
        *self.local.lock().unwrap() = Some(stream.try_clone().unwrap());
        let mut body = Vec::new();
        loop {
            let header = read_header(&mut stream).ok()?;
            read_body(&mut stream, &header, &mut body).ok()?;
            match header.kind() {
                Kind::Attach => {
                    self.attaches.fetch_add(1, SeqCst);
                    let shard = Attach::decode(&body).unwrap().shard;
                    if self.forgot.load(SeqCst) {
                        let (mut frame, why) = (Vec::new(), "not open here; open it first");
                        let error = WireFailure::new(ErrorKind::NotFound, why);
                        ErrorReply::from(error).encode(header.request(), &mut frame);
                        stream.write_all(&frame).ok()?;
                        continue;
                    }
                    let sealed = self.fixture.seal(shard);
                    let mut frame = Vec::new();
                    let extent = *self.fixture.manifest.shard(shard).id.as_bytes();
                    Attached { extent }.encode(header.request(), &mut frame);
                    let fd = sealed.open_for_peer().unwrap();
                    send_with_fds(&stream, &frame, &[fd.as_fd()]).unwrap();
                }
                Kind::Release => {
                    let release = larder_wire::data::Release::decode(&body).unwrap();
                    self.releases.lock().unwrap().push(release.shard);
                }
                other => panic!("{other:?} on the unix socket"),
            }
        }
    }
}
