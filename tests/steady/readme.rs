//! The README: its program runs, and its links work outside the repository.

use std::path::Path;

use wiremock::matchers::{any, header_exists};
use wiremock::{Mock, MockServer, ResponseTemplate};

const README: &str = include_str!("../../README.md");
const THIS_FILE: &str = include_str!("readme.rs");

/// The program of the README, with another URL and with the report as its result.
async fn program(url: &str) -> Result<String, Box<dyn std::error::Error>> {
    use std::time::Duration;

    use reqwest_middleware::ClientBuilder;
    use reqwest_steady::{
        ClientBuilderExt, IdempotencyKey, RequestBuilderExt, RetryReport, Steady,
    };

    // begin
    let steady = Steady::builder()
        .attempt_timeout(Duration::from_secs(10)) // a silent server would block the call forever
        .deadline(Duration::from_secs(60)) // for all attempts together
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady)
        .build();

    // GET, HEAD, OPTIONS, TRACE, QUERY, PUT and DELETE are retried. POST and PATCH need a key.
    let response = client
        .post(url)
        .idempotency_key(IdempotencyKey::random()) // for payments, store it with the order
        .body("one teapot")
        .send()
        .await?;

    let report = RetryReport::of(&response).expect("every response carries one");
    // end
    Ok(format!("{report:?}"))
}

#[tokio::test]
async fn the_program_of_the_readme_retries_its_order() {
    let server = MockServer::start().await;
    for (status, times) in [(503, 1), (200, 1)] {
        Mock::given(header_exists("idempotency-key"))
            .respond_with(ResponseTemplate::new(status))
            .up_to_n_times(times)
            .expect(times)
            .mount(&server)
            .await;
    }
    Mock::given(any())
        .respond_with(ResponseTemplate::new(418))
        .mount(&server)
        .await;
    let report = program(&server.uri()).await.unwrap();
    assert!(report.contains("503") && report.contains("200"), "{report}");
    assert_eq!(server.received_requests().await.unwrap().len(), 2);
}

#[test]
fn the_program_that_runs_is_the_one_in_the_readme() {
    let (_, rest) = THIS_FILE.split_once("    // begin\n").unwrap();
    let (body, _) = rest.split_once("    // end\n").unwrap();
    let body = body.replace(".post(url)", ".post(\"https://api.example.com/orders\")");
    assert!(README.contains(&body), "{body}");
}

#[test]
fn the_readme_is_short() {
    assert!(README.lines().count() <= 120);
}

/// The targets of all links and pictures.
fn links() -> impl Iterator<Item = &'static str> {
    let ends = README.split("](").skip(1);
    ends.map(|rest| rest.split_once(')').unwrap().0)
}

#[test]
fn links_of_the_readme_work_on_a_package_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = "https://docs.rs/crate/reqwest-steady/latest/source/";
    let pages = "https://docs.rs/reqwest-steady/latest/reqwest_steady/";
    let mut files = 0;
    for link in links() {
        assert!(link.starts_with("https://docs.rs/"), "{link}");
        if let Some(path) = link.strip_prefix(source) {
            assert!(root.join(path).is_file(), "{path}");
            // Members of the workspace are not in the package.
            let member = ["lab/", "proof/", "fuzz/", "models/", ".ci/"];
            assert!(
                !member.iter().any(|folder| path.starts_with(folder)),
                "{path}"
            );
            files += 1;
        } else if let Some(page) = link.strip_prefix(pages) {
            let known = [
                "guide",
                "guide/recipes/#payments",
                "struct.RetryMiddlewareBuilder.html",
                "struct.ThrottleMiddlewareBuilder.html",
            ];
            assert!(known.contains(&page), "{page}");
        }
    }
    assert!(files >= 5, "{files} files");
}
