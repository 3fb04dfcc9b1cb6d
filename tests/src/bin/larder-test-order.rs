//! The order of the Rust client, for tests of clients in other languages: prints the samples of one
//! epoch as one rank of one hands them out, as a JSON list.

use std::process::ExitCode;

use larder_client::{Dataset, Error, ErrorKind, ShuffleMode, sampler::Last};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [uri, cluster, shuffle, seed, epoch] = &arguments[..] else {
        eprintln!("usage: larder-test-order URI CLUSTER SHUFFLE SEED EPOCH");
        return ExitCode::FAILURE;
    };
    match order(uri, cluster, shuffle, seed, epoch) {
        Ok(samples) => {
            println!("{}", serde_json::json!(samples));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn order(
    uri: &str,
    cluster: &str,
    shuffle: &str,
    seed: &str,
    epoch: &str,
) -> Result<Vec<u64>, Error> {
    let unread = |word| Error::new(ErrorKind::InvalidArgument, format!("'{word}' is no number"));
    let number = |word: &str| word.parse::<u64>().map_err(|_| unread(word.to_owned()));
    let dataset = Dataset::options().cluster(cluster).open(uri)?;
    let shuffle: ShuffleMode = shuffle.parse().map_err(Error::from)?;
    let builder = dataset.loader().shuffle(shuffle).seed(number(seed)?).last(Last::Uneven);
    let mut samples = Vec::new();
    for batch in builder.build()?.epoch(number(epoch)?)? {
        samples.extend_from_slice(batch?.samples());
    }
    Ok(samples)
}
