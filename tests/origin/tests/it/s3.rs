//! The server's promises to a client: S3 as object_store and the AWS tools speak it.

use std::fs;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};

use crate::support::{PATIENCE, Site, client, listing, pattern};
use larder_origin::{Options, S3Server};

#[tokio::test]
async fn ranges_are_exact_and_refused_past_the_end() {
    let site = Site::new();
    let bytes = pattern(3_000_001);
    site.file("a/object", &bytes);
    let store = client(&site.server);
    let path = Path::from("a/object");

    let whole = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert!(whole == bytes);
    for range in [0..1, 5..4101, 999_999..2_500_000, 3_000_000..3_000_001] {
        let at = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        let got = store.get_range(&path, range).await.unwrap();
        assert!(got == bytes[at]);
    }
    assert!(store.get_range(&path, 3_000_001..3_000_002).await.is_err());
    assert!(matches!(store.get(&Path::from("a/none")).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn an_etag_follows_the_content_and_if_match_is_honoured() {
    let site = Site::new();
    site.file("object", &pattern(1000));
    let store = client(&site.server);
    let path = Path::from("object");
    let pinned = store.head(&path).await.unwrap().e_tag;
    assert!(pinned.is_some());
    let get = || store.get_opts(&path, GetOptions::new().with_if_match(pinned.clone()));
    assert_eq!(get().await.unwrap().meta.e_tag, pinned);

    site.file("object", &pattern(999));
    assert!(matches!(get().await, Err(Error::Precondition { .. })));
    site.file("object", &pattern(1000));
    assert_eq!(get().await.unwrap().meta.e_tag, pinned);
    let put = store.put(&Path::from("copy"), pattern(1000).into()).await.unwrap();
    assert_eq!(put.e_tag, pinned);
}

#[tokio::test]
async fn lists_of_over_1000_keys_are_paged_with_etags() {
    let site = Site::new();
    for index in 0..2300 {
        site.file(&format!("many/{index:04}"), format!("{index}").as_bytes());
    }
    site.file("other", b"");
    let store = client(&site.server);
    let prefix = Path::from("many");
    let listed: Vec<_> = store.list(Some(&prefix)).try_collect().await.unwrap();
    assert_eq!(listed.len(), 2300);
    assert!(listed.iter().all(|object| object.e_tag.is_some()));
    assert_eq!(site.server.counts().get_requests, 3);
}

#[test]
fn keys_are_encoded_if_a_listing_asks_for_it() {
    let site = Site::new();
    site.file("a b/50% \u{fc}+.npy", b"");
    let plain = listing(&site.server, "list-type=2");
    assert!(plain.contains("<Key>a b/50% \u{fc}+.npy</Key>"), "{plain}");
    for version in ["list-type=2&", ""] {
        let listed = listing(&site.server, &format!("{version}encoding-type=url&prefix=a%20b"));
        assert!(listed.contains("<Key>a%20b/50%25%20%C3%BC%2B.npy</Key>"), "{listed}");
        assert!(listed.contains("<Prefix>a%20b</Prefix>"), "{listed}");
        assert!(listed.contains("<EncodingType>url</EncodingType>"), "{listed}");
    }
}

#[tokio::test]
async fn one_of_many_writers_that_create_an_object_wins() {
    let site = Site::new();
    let store = client(&site.server);
    let path = Path::from("tag");
    let create = |index: u64| {
        let payload = PutPayload::from(index.to_string().into_bytes());
        store.put_opts(&path, payload, PutMode::Create.into())
    };
    let results = futures_util::future::join_all((0..16).map(create)).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(
        results
            .into_iter()
            .filter_map(Result::err)
            .all(|error| matches!(error, Error::AlreadyExists { .. }))
    );
}

#[tokio::test]
async fn one_of_many_writers_that_update_a_version_wins() {
    let site = Site::new();
    let store = client(&site.server);
    let path = Path::from("tag");
    let first = UpdateVersion::from(store.put(&path, "first".into()).await.unwrap());
    let update = |index: u64| {
        let payload = PutPayload::from(index.to_string().into_bytes());
        store.put_opts(&path, payload, PutMode::Update(first.clone()).into())
    };
    let results = futures_util::future::join_all((0..16).map(update)).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let absent = store
        .put_opts(&Path::from("none"), "x".into(), PutMode::Update(first.clone()).into())
        .await;
    assert!(matches!(absent, Err(Error::Precondition { .. })));
}

#[tokio::test]
async fn uploads_in_parts_copies_and_deletes_work() {
    let site = Site::new();
    let store = client(&site.server);
    let (path, copy) = (Path::from("big"), Path::from("copy"));
    let mut upload = store.put_multipart(&path).await.unwrap();
    let part = pattern(5 << 20);
    upload.put_part(part.clone().into()).await.unwrap();
    upload.put_part(part.clone().into()).await.unwrap();
    let put = upload.complete().await.unwrap();
    assert_eq!(put.e_tag, store.head(&path).await.unwrap().e_tag);
    store.copy(&path, &copy).await.unwrap();
    assert!(
        store.get(&copy).await.unwrap().bytes().await.unwrap() == [part.clone(), part].concat()
    );
    store.delete(&copy).await.unwrap();
    assert!(matches!(store.head(&copy).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn a_wrong_secret_and_no_signature_are_refused() {
    let site = Site::new();
    site.file("object", b"secret");
    let wrong =
        crate::support::builder(&site.server).with_secret_access_key("not it").build().unwrap();
    assert!(matches!(
        wrong.get(&Path::from("object")).await,
        Err(Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
    ));
    let unsigned = crate::support::builder(&site.server).with_skip_signature(true).build().unwrap();
    assert!(unsigned.get(&Path::from("object")).await.is_err());
    assert_eq!(site.server.counts().object_reads, 0);
}

#[tokio::test]
async fn counts_have_requests_bytes_and_read_ranges() {
    let site = Site::new();
    site.file("dir/object", &pattern(10_000));
    let store = client(&site.server);
    let path = Path::from("dir/object");
    store.get_range(&path, 0..4000).await.unwrap();
    store.get_range(&path, 4000..10_000).await.unwrap();
    let counts = site.server.counts();
    assert_eq!((counts.requests, counts.get_requests, counts.object_reads), (2, 2, 2));
    assert_eq!(counts.bytes_sent, 10_000);
    assert_eq!(counts.reads.of("bucket/dir/object"), [0..4000, 4000..10_000]);
    assert_eq!(counts.reads.bytes_read_again(), 0);

    store.get_range(&path, 3999..4001).await.unwrap();
    assert_eq!(site.server.counts().reads.bytes_read_again(), 2);
    site.server.reset_counts();
    assert_eq!(site.server.counts().requests, 0);
}

#[test]
fn counts_can_be_read_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { counts_port: Some(0), ..Options::default() };
    let server = S3Server::start(directory.path(), &options).unwrap();
    let endpoint = server.counts_endpoint().unwrap();
    let address = endpoint.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let answer =
        crate::support::talk(address, b"GET /_counts HTTP/1.1\r\nhost: x\r\n\r\n", PATIENCE);
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(json["requests"], 0);
    assert_eq!(json["bytes_sent"], 0);
}

#[tokio::test]
async fn stopped_server_refuses_and_its_port_can_be_reused() {
    let site = Site::new();
    site.file("object", &pattern(100));
    let store = client(&site.server);
    store.get(&Path::from("object")).await.unwrap().bytes().await.unwrap();
    let address = site.server.address();
    let (directory, server) = site.into_parts();
    tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());

    let options = Options { port: address.port(), ..Options::default() };
    let again = S3Server::start(directory.path(), &options).unwrap();
    assert_eq!(again.address(), address);
    // Another client: the first may not have noticed yet that its connection was reset.
    client(&again).get(&Path::from("object")).await.unwrap().bytes().await.unwrap();
}

#[tokio::test]
async fn keys_cannot_leave_their_bucket() {
    let site = Site::new();
    fs::write(site.server.directory().join("outside"), b"x").unwrap();
    for target in ["/bucket/../outside", "/bucket/%2e%2e/outside", "/bucket/a//b"] {
        let url = crate::support::presigned(&site.server, target).await;
        assert!(
            crate::support::get(&site.server, &url, "bytes=0-0", PATIENCE).status != 206,
            "{target}"
        );
    }
}

/// Prints the server's speed, since the speed of the tested client cannot exceed it.
#[expect(clippy::disallowed_methods, reason = "a figure for the reader, asserted by nothing")]
#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_one_and_of_eight_connections_is_printed() {
    let site = Site::new();
    site.file("object", &pattern(64 << 20));
    let store = client(&site.server);
    let path = Path::from("object");
    store.head(&path).await.unwrap();
    for (bytes, readers, rounds) in
        [(150_528, 1, 200_u64), (150_528, 8, 50), (16 << 20, 1, 8), (16 << 20, 4, 4)]
    {
        let start = Instant::now();
        let reader = |_| {
            let (store, path) = (&store, &path);
            async move {
                for round in 0..rounds {
                    let at = round % 4 * bytes;
                    assert_eq!(
                        store.get_range(path, at..at + bytes).await.unwrap().len() as u64,
                        bytes
                    );
                }
            }
        };
        futures_util::future::join_all((0..readers).map(reader)).await;
        let gets = rounds * readers;
        let rate = gets as f64 / start.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
        let gib = rate * bytes as f64 / f64::from(1 << 30);
        println!("{bytes:>9} bytes x {readers} connections: {rate:>6.0} GET/s, {gib:.2} GiB/s");
    }
}
