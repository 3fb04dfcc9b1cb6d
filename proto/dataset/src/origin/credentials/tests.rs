//! Which identity is taken, by variables and by profiles. Whether boto3 takes the same is a test of
//! the Python package.

use std::path::Path;

use object_store::CredentialProvider as _;

use super::*;

/// What an origin says of its identity with these variables, and its provider.
async fn decided(variables: &[(&str, &str)]) -> Result<(String, Option<Arc<Renewed>>), String> {
    crate::install_crypto();
    let origin = OriginUri::parse("s3://bucket/x").unwrap();
    // No process listens on port 1.
    let nowhere = [("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1"), ("HOME", "/nonexistent")];
    let is_set = |name| variables.iter().any(|(set, _)| *set == name);
    let variables = nowhere.iter().filter(|(name, _)| !is_set(*name)).chain(variables);
    let variables = variables.map(|&(name, value)| (name.into(), value.into()));
    let mut settings = Settings::of(&origin, "AWS_", &Variables::of(variables)).unwrap();
    let library: Library<'_> = &|settings| Err(settings.refused("the library's".into()));
    let decided = decide(&mut settings, library).await.map_err(|error| error.to_string())?;
    Ok((decided.access.to_string(), decided.keys))
}

async fn identity(variables: &[(&str, &str)]) -> Result<String, String> {
    let (access, _) = decided(variables).await?;
    Ok(access.rsplit_once(", ").expect("three parts").1.to_owned())
}

/// Writes both files into a folder. Returns the variables that name them.
fn files<'a>(folder: &'a Path, credentials: &str, config: &str) -> [(&'static str, &'a str); 1] {
    let aws = folder.join(".aws");
    fs::create_dir_all(&aws).unwrap();
    fs::write(aws.join("credentials"), credentials).unwrap();
    fs::write(aws.join("config"), config).unwrap();
    [("HOME", folder.to_str().unwrap())]
}

#[tokio::test]
async fn identity_that_the_variables_name_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "token").unwrap();
    let token = token.to_str().unwrap();
    let keys = [(KEY_ID, "AKIA1"), (SECRET, "secret")];
    let web = [(ROLE, "arn:r"), (TOKEN_FILE, token)];
    let pod = [(CONTAINER, "http://127.0.0.1/c"), (CONTAINER_TOKEN_FILE, token)];
    for (variables, said) in [
        (&keys[..], "signs as AKIA1 by AWS_ACCESS_KEY_ID"),
        (&[web, keys].concat(), "signs as AKIA1 by AWS_ACCESS_KEY_ID"),
        (
            &[(KEY_ID, ""), (SECRET, ""), web[0], web[1]],
            "signs as arn:r by AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
        (&pod, "signs as the container's role by AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        (&[("AWS_SKIP_SIGNATURE", "True"), keys[0], keys[1]], "by AWS_SKIP_SIGNATURE"),
    ] {
        assert_eq!(identity(variables).await.as_deref(), Ok(said), "{variables:?}");
    }
}

#[tokio::test]
async fn incomplete_identity_is_refused_by_the_name_of_the_variable() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("token");
    fs::write(&broken, "token\n").unwrap();
    let broken = broken.to_str().unwrap();
    let pod = (CONTAINER, "http://127.0.0.1/c");
    for (variables, why) in [
        (&[(KEY_ID, "key")][..], "AWS_SECRET_ACCESS_KEY is not"),
        (&[(SECRET, "key")], "AWS_ACCESS_KEY_ID is not"),
        (&[(ROLE, "arn:r")], "AWS_WEB_IDENTITY_TOKEN_FILE is not"),
        (&[(TOKEN_FILE, broken)], "AWS_ROLE_ARN is not"),
        (&[(ROLE, "arn:r"), (TOKEN_FILE, "/no/such")], "AWS_WEB_IDENTITY_TOKEN_FILE '/no/such'"),
        (&[pod], "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE is not"),
        (&[pod, (CONTAINER_TOKEN, "t")], "AWS_CONTAINER_AUTHORIZATION_TOKEN is not supported"),
        (&[pod, (CONTAINER_TOKEN_FILE, broken)], "a line break"),
        (&[(CONTAINER_PATH, "v2")], "must begin with '/'"),
        (&[], "no profile default in /nonexistent/.aws/credentials or"),
        (&[("AWS_PROFILE", "dev")], "no profile dev in /nonexistent/.aws/credentials or"),
    ] {
        let error = identity(variables).await.unwrap_err();
        assert!(error.contains(why) && !error.contains("token\n"), "{error}");
    }
}

/// Profiles of each kind.
const CREDENTIALS: &str = "\
[base]
aws_access_key_id = AKIABASE
aws_secret_access_key = hidden
";
const CONFIG: &str = "\
[profile web]
role_arn = arn:web
web_identity_token_file = /no/such
[profile tool]
credential_process = keys --secret hidden
[profile login]
sso_session = work
sso_account_id = 123
sso_role_name = Reader
[sso-session work]
sso_start_url = https://work.example
sso_region = eu-west-1
[profile role]
role_arn = arn:role
source_profile = login
[profile far]
role_arn = arn:far
source_profile = role
";

#[tokio::test]
async fn identity_that_a_profile_leads_to_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let home = files(folder.path(), CREDENTIALS, CONFIG);
    let keys = format!("keys of {}/.aws/credentials", folder.path().display());
    for (profile, said) in [
        ("base", &*format!("signs as AKIABASE by profile base ({keys})")),
        ("web", "signs as arn:web by profile web (web identity)"),
        ("tool", "signs by profile tool (credential_process keys)"),
        ("login", "signs as Reader of account 123 by profile login (SSO)"),
        ("role", "signs as arn:role by profile role (source_profile login: SSO)"),
        ("far", "signs as arn:far by profile far (source_profile role: source_profile login: SSO)"),
    ] {
        let variables = [home[0], ("AWS_PROFILE", profile)];
        assert_eq!(identity(&variables).await.as_deref(), Ok(said));
    }
}

#[tokio::test]
async fn settings_of_the_profile_are_taken_unless_variables_set_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[default]\nregion = eu-north-1\nservices = local\nendpoint_url = http://all\n\
                  [services local]\ns3 =\n  endpoint_url = http://127.0.0.1:9\n";
    let keys = "[default]\naws_access_key_id = K\naws_secret_access_key = S\n";
    let home = files(folder.path(), keys, config);
    let (access, _) = decided(&home).await.unwrap();
    assert!(access.starts_with("at http://127.0.0.1:9, region eu-north-1, signs as K"), "{access}");
    let set = [home[0], ("AWS_REGION", "a"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:8")];
    let (access, _) = decided(&set).await.unwrap();
    assert!(access.starts_with("at http://127.0.0.1:8, region a, "), "{access}");
}

#[tokio::test]
async fn profile_that_cannot_be_used_is_an_error_with_its_name() {
    crate::install_crypto();
    let role = |more: &str| format!("[default]\nrole_arn = arn:r\n{more}");
    for (credentials, config, why) in [
        ("[default]\nfoo\n", "", "credentials, line 2 can't be read: it is neither"),
        ("[default]\na = 1\n[default]\n", "", "line 3 can't be read: this section"),
        ("[default]\na = 1\nA = 2\n", "", "line 3 can't be read: its section has this key"),
        ("a = 1\n", "", "line 1 can't be read: it stands before"),
        ("[default]\naws_access_key_id = K\n", "", "line 2, but no aws_secret_access_key"),
        ("", "[default]\nregion = a b\n", "region of profile default: 'a b' is no region"),
        ("", "[default]\nendpoint_url = s3.local\n", "endpoint_url of profile default: "),
        ("", "[default]\nregion = a\n", "profile default of "),
        ("[dev]\n[prod]\n", "[profile test]\n", "set AWS_PROFILE to one of: dev, prod, test"),
        ("", &role(""), "neither source_profile nor credential_source"),
        ("", &role("source_profile = a\ncredential_source = b\n"), "has both source_profile"),
        ("", &role("source_profile = gone\n"), "names the source_profile gone, which does not"),
        ("", &role("source_profile = default\n"), "itself as its source: default > default"),
        ("[a]\nb = 1\n", &role("source_profile = a\n"), "profile a is the source of default"),
        ("", &role("credential_source = Ec2\n"), "the credential_source Ec2, which does not"),
        ("", &role("credential_source = EcsContainer\n"), "whose variables are not set"),
        ("", &role("source_profile = a\nmfa_serial = m\n"), "default has an mfa_serial"),
        ("", "[default]\nweb_identity_token_file = f\n", "no role_arn"),
        ("", "[default]\nsso_role_name = r\n", "is one of SSO, but has no sso_account_id"),
        (
            "",
            "[default]\nsso_session = s\nsso_role_name = r\n",
            "names the sso_session s, which does not exist",
        ),
        ("", "[default]\nlogin_session = s\n", "profile default is one of 'aws login'"),
        ("", "[default]\ncredential_process = 'a\n", "a quote in it does not end"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = identity(&files(folder.path(), credentials, config)).await.unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// The key id that a profile `[default]` of the config file gives, or the error and its remedy.
async fn key_of(folder: &Path, config: &str) -> Result<String, String> {
    let (_, provider) = decided(&files(folder, "", config)).await?;
    let keys = provider.expect("a profile").get_credential().await.map_err(|error| {
        let origin = OriginUri::parse("s3://bucket/x").unwrap();
        OriginError::from_store(&origin, &error).to_string()
    })?;
    Ok(keys.key_id.clone())
}

#[tokio::test]
async fn credential_process_is_checked_and_its_output_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let good = r#"{"Version": 1, "AccessKeyId": "K", "SecretAccessKey": "hidden"}"#;
    let expired = good.replace("}", r#", "Expiration": "2001-01-01T00:00:00Z"}"#);
    for (script, expected) in [
        (format!("echo '{good}'"), Ok("K")),
        (format!("echo '{}'", good.replace('1', "2")), Err("wrote Version 2, not 1")),
        ("echo hidden".to_owned(), Err("wrote no JSON")),
        (r#"echo '{"Version": "hidden"}'"#.to_owned(), Err("wrote no JSON")),
        ("echo oh no >&2; echo hidden; exit 3".to_owned(), Err("exit status: 3) and said 'oh no'")),
        ("yes hidden | head -c 100000".to_owned(), Err("more than 65536 bytes")),
        (format!("echo '{expired}'"), Err("gave keys that have expired already")),
        (format!("echo '{}'", good.replace("\"K\"", "\"K K\"")), Err("a character that no key")),
    ] {
        let program = folder.path().join("with space");
        fs::write(&program, &script).unwrap();
        let config = format!("[default]\ncredential_process = sh \"{}\" x\n", program.display());
        match (key_of(folder.path(), &config).await, expected) {
            (Ok(key), expected) => assert_eq!(Ok(&*key), expected),
            (Err(error), Ok(_)) => panic!("{error}"),
            (Err(error), Err(why)) => {
                assert!(error.contains(why) && error.contains("profile default"), "{error}");
                assert!(!error.contains("hidden"), "{error}");
            }
        }
    }
    let gone = key_of(folder.path(), "[default]\ncredential_process = /no/such a\n").await;
    let gone = gone.unwrap_err();
    assert!(gone.contains("'/no/such' of profile default can't run"), "{gone}");
}

#[tokio::test]
async fn login_that_is_missing_or_expired_names_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[default]\nsso_account_id = 1\nsso_role_name = r\nsso_region = eu-west-1\n\
                  sso_start_url = https://work.example\n";
    let error = key_of(folder.path(), config).await.unwrap_err();
    assert!(error.contains("login of profile default does not exist"), "{error}");
    assert!(error.contains("run: aws sso login --profile default"), "{error}");
    let cache = folder.path().join(".aws/sso/cache");
    fs::create_dir_all(&cache).unwrap();
    // By sha1sum of the start URL.
    let path = cache.join("2d6272fb51a1f5c6739705ee6ec5858c796de45b.json");
    for (token, why) in [
        (r#"{"accessToken": "hidden", "expiresAt": "2001-01-01T00:00:00UTC"}"#, "has expired"),
        (r#"{"accessToken": "hidden"}"#, "has a token that is damaged"),
        ("hidden", "has a token that is damaged"),
    ] {
        fs::write(&path, token).unwrap();
        let error = key_of(folder.path(), config).await.unwrap_err();
        assert!(error.contains(why) && !error.contains("hidden"), "{error}");
    }
}

fn target_of(variables: &[(&str, &str)]) -> Variables {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    target(&Variables::of(variables))
}

#[test]
fn identities_share_a_target_and_endpoints_do_not() {
    let none = target_of(&[]);
    for name in ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_SERVICE_ACCOUNT_KEY"] {
        assert_eq!(target_of(&[(name, "a")]), none, "{name}");
    }
    for name in ["AWS_ENDPOINT_URL", "AWS_REGION", "AZURE_STORAGE_ACCOUNT_NAME", "AWS_NEW"] {
        assert_ne!(target_of(&[(name, "http://a")]), none, "{name}");
    }
}

#[test]
fn the_endpoint_of_a_profile_is_part_of_the_target() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".aws")).unwrap();
    let profiles = "[profile a]\nregion = eu-west-1\n[profile b]\nregion = eu-west-1\n\
                    [profile c]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:1\n";
    fs::write(home.path().join(".aws/config"), profiles).unwrap();
    let home = home.path().to_str().unwrap();
    let by = |profile| target_of(&[("HOME", home), ("AWS_PROFILE", profile)]);
    assert_eq!(by("a"), by("b"));
    assert_ne!(by("a"), by("c"));
    assert_eq!(by("missing"), target_of(&[]), "the open will say that it is missing");
}
