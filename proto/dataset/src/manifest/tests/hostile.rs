//! Damaged roots and leaves: parsed with an error, or safe to use.

use super::*;

/// Uses everything of a manifest and a leaf that may be damaged.
fn use_all(manifest: &Manifest, leaf: &Leaf) {
    for shard in leaf.shards() {
        manifest.shard_id_holds(leaf, shard);
        for get in manifest.fill_plan(leaf, shard, 64).gets {
            let body = vec![0; at(get.bytes())];
            Scatter::new(manifest, leaf, shard, &get)
                .take(&body, |_, _, _| Ok::<_, ()>(()))
                .unwrap();
        }
        for row in (0..manifest.shard(shard).rows).map(|row| RowRef { shard, row }) {
            for tensor in 0..manifest.tensors().len() {
                manifest.row_source(leaf, row, tensor);
                manifest.row_in_region(leaf, row, tensor);
            }
        }
    }
    (0..leaf.object_count()).for_each(|object| drop(leaf.object_uri(object)));
}

/// Changes some bytes, and cuts the rest off.
fn damaged(
    bytes: &[u8],
    changes: &[(prop::sample::Index, u8)],
    cut: Option<prop::sample::Index>,
) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, value) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

proptest! {
    #[test]
    fn damaged_root_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
        has_keys in any::<bool>(),
    ) {
        let plain = members(&[40, 2, 9], 256);
        let sound = if has_keys { keyed(&plain.manifest) } else { plain.manifest.clone() };
        if let Ok(manifest) = Manifest::parse(damaged(sound.as_bytes(), &changes, cut).into()) {
            if let Some(table) = manifest.key_table() {
                let found = table.find(Key::Text(b"7"));
                prop_assert!(found.is_none_or(|sample| sample < manifest.samples()));
            }
            for sample in 0..manifest.samples() {
                manifest.locate(sample).unwrap();
            }
            for (number, leaf) in (0..manifest.leaf_count()).zip(&plain.leaves) {
                let bytes = Arc::new(leaf.as_bytes().to_vec());
                if let Ok(leaf) = Leaf::unnamed(&manifest, number, bytes) {
                    use_all(&manifest, &leaf);
                }
            }
        }
    }

    #[test]
    fn damaged_leaf_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
        has_columns in any::<bool>(),
    ) {
        let sound = if has_columns { pairs(&[40, 2, 9], 256) } else { members(&[40, 2, 9], 256) };
        let bytes = damaged(sound.leaves[0].as_bytes(), &changes, cut);
        if let Ok(leaf) = Leaf::unnamed(&sound.manifest, 0, Arc::new(bytes)) {
            use_all(&sound.manifest, &leaf);
        }
    }
}
