//! Options as JSON, as other languages set them.

use super::*;

fn samples_of(builder: LoaderBuilder) -> Vec<u64> {
    let mut loader = builder.build().unwrap();
    loader.epoch(1).unwrap().flat_map(|batch| batch.unwrap().samples().to_vec()).collect()
}

#[test]
fn options_of_json_equal_those_of_methods() {
    let json = r#"{"batch_size": 10, "shuffle": "window:3", "seed": 18446744073709551615,
        "rank": 1, "world_size": 3, "worker": 1, "workers": 2, "last": "pad", "tensors": ["label"],
        "prefetch": 3, "rank_hosts": "presumed_this", "quiet": true, "job": "a", "decode": []}"#;
    let read = builder().options(LoaderOptions::from_json(json).unwrap());
    let window: ShuffleMode = "window:3".parse().unwrap();
    let set = builder().batch_size(10).shuffle(window).seed(u64::MAX).rank(1, 3).worker(1, 2);
    let set = set.last(Last::Pad).tensors(["label"]).prefetch(3).job("a").quiet();
    let set = set.rank_hosts(RankHosts::PresumedThis);
    assert_eq!(format!("{read:?}"), format!("{set:?}"));
    assert_eq!(samples_of(read), samples_of(set));
    let default = builder().options(LoaderOptions::from_json("{}").unwrap());
    assert_eq!(format!("{default:?}"), format!("{:?}", builder()));
}

#[test]
fn wrong_options_of_json_are_refused_by_name() {
    let image = |crop: &str| {
        let rest = r#""flip": false, "gray": false, "nearest": false, "sixteen": false"#;
        format!(
            r#"{{"decode": [["a", {{"image": {{"height": 8, "width": 8, {crop}, {rest}}}}}]]}}"#
        )
    };
    for (json, what) in [
        ("[]", "the options are no JSON object: invalid type"),
        (r#"{"colour": 1}"#, "colour can't be read: unknown field `colour`, expected one of"),
        (r#"{"seed": 0, "job": 3}"#, "job can't be read: invalid type: integer `3`, expected a st"),
        (r#"{"prefetch": -1}"#, "prefetch can't be read: invalid value: integer `-1`"),
        (r#"{"shuffle": "some"}"#, "'some' is not a shuffle: none, window, window:SHARDS or gl"),
        (r#"{"last": "keep"}"#, "'keep' is not the treatment of a last batch: drop, pad or uneven"),
        (&image(r#""crop": "center", "bounds": [2.0, 0, 0, 0]"#), "decode can't be read: a center"),
        (&image(r#""crop": "middle", "bounds": [1.0, 0, 0, 0]"#), "unknown variant `middle`"),
    ] {
        let error = LoaderOptions::from_json(json).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}
