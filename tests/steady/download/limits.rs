//! What ends a download, or makes it wait: servers, budgets, deadlines and silence.

use reqwest_middleware::ClientBuilder;
use reqwest_steady::CoalesceMiddleware;

use super::*;

#[tokio::test(start_paused = true)]
async fn downloads_that_are_coalesced_go_on() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 100, Then::Fail).after(SEC));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(CoalesceMiddleware::default())
        .with(RetryMiddleware::default())
        .with_arc(server.clone())
        .build();
    let whole = || async {
        let mut download = client.get(URL).download().backoff(exact()).await.unwrap();
        assert_eq!(download.length(), Some(300));
        assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
        assert_eq!(download.resumes(), 2);
    };
    tokio::join!(whole(), whole());
    assert!(server.count() <= 6, "{}", server.count());
}
