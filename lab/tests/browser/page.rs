//! The page of all scenarios.

use std::fs;

use crate::chromium::{Browser, Directory, Scheme};
use crate::{LAYOUT, lab};

const WIDTHS: [u32; 3] = [400, 800, 1280];

#[test]
fn nothing_overlaps_or_overflows_at_any_width() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let directory = Directory::new();
    let file = directory.file("lab.html");
    // All scenarios, one whose rates have the longest labels, and a described service with settings.
    let described = concat!(
        "try --service ",
        env!("CARGO_MANIFEST_DIR"),
        "/examples/outage.toml --settings ",
        env!("CARGO_MANIFEST_DIR"),
        "/src/yours/every_setting.toml"
    );
    for line in ["--clients 200", "drain --clients 10000", described] {
        lab(line, &file);
        for width in WIDTHS {
            for scheme in [Scheme::Light, Scheme::Dark] {
                browser.open_file(&file, width, scheme);
                let wrong = browser.texts(LAYOUT);
                assert!(wrong.is_empty(), "{line}, {width}, {scheme:?}: {wrong:#?}");
                assert_eq!(browser.complaints(), [""; 0]);
                assert_eq!(browser.requested().len(), 1, "only the page itself");
            }
        }
    }
}

#[test]
fn the_layout_test_finds_planted_mistakes() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let directory = Directory::new();
    let file = directory.file("lab.html");
    lab("burst", &file);
    for (plant, named) in [
        (
            "document.querySelector('h2').style.width = '900px'",
            "wide in a window of 400",
        ),
        (
            "document.querySelector('table').style.overflowX = 'scroll'; \
          document.querySelector('table').insertAdjacentHTML('beforeend', '<div style=\"width: 600px\">x</div>')",
            "scrolled sideways",
        ),
        (
            "document.querySelector('.ticks.x text:last-child').setAttribute('x', '1%')",
            "overlaps",
        ),
        (
            "document.querySelector('.ticks.y').replaceChildren()",
            "0 ticks on its y axis",
        ),
        (
            "document.querySelectorAll('.ticks.y text:not(:first-child)').forEach(tick => tick.remove())",
            "1 ticks on its y axis",
        ),
        (
            "document.querySelectorAll('.ticks.x text').forEach(tick => tick.textContent = parseFloat(tick.textContent))",
            "without a unit",
        ),
        (
            "document.querySelector('.outcome.axis .ticks').replaceChildren()",
            "without ticks",
        ),
        (
            "document.querySelector('.client.ours').style.fontWeight = '400'",
            "a weight of 400",
        ),
        (
            "document.querySelector('figcaption').style.fontSize = '9px'",
            "letters of 9px",
        ),
        (
            "document.querySelector('figcaption').style.color = '#ccc'",
            "a contrast of",
        ),
        (
            "document.querySelector('.ticks.y text').setAttribute('dy', '40em')",
            "beside its y axis",
        ),
        (
            "document.querySelector('figcaption').style.cssText = 'position: relative; top: -200px'",
            "leaves its frame",
        ),
        (
            "document.querySelector('h2').insertAdjacentHTML('afterend', \
             '<select style=\"width: 60px; font-size: 12px\"><option>a long choice</option></select>')",
            "is wider than",
        ),
    ] {
        browser.open_file(&file, 400, Scheme::Light);
        assert_eq!(browser.texts(LAYOUT), [""; 0]);
        browser.value(plant);
        let wrong = browser.texts(LAYOUT);
        assert!(
            wrong.iter().any(|it| it.contains(named)),
            "{plant}: {wrong:#?}"
        );
    }
}

#[test]
fn light_and_dark_pages_have_their_colours() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let directory = Directory::new();
    let file = directory.file("lab.html");
    lab("herd", &file);
    // The colours of charts: paper, accepted, refused.
    let light = [[0xff, 0xff, 0xff], [0x0b, 0x5f, 0x94], [0xe0, 0x70, 0x1a]];
    let dark = [[0x12, 0x16, 0x1c], [0x85, 0xcb, 0xf5], [0xd9, 0x69, 0x1e]];
    for (scheme, expected, absent) in [(Scheme::Light, light, dark), (Scheme::Dark, dark, light)] {
        browser.open_file(&file, 1200, scheme);
        let drawn = browser.colours(1200);
        assert!(
            expected.iter().all(|colour| drawn.contains(colour)),
            "{scheme:?}"
        );
        assert!(
            !absent[1..].iter().any(|colour| drawn.contains(colour)),
            "{scheme:?}"
        );
    }
}

#[test]
fn the_policy_of_the_page_forbids_scripts_and_loading() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let directory = Directory::new();
    let file = directory.file("lab.html");
    lab("burst", &file);
    let whole = fs::read_to_string(&file).unwrap();
    // The browser logs what the policy stops. Without a log, the page has none of it.
    browser.open_file(&file, 800, Scheme::Light);
    assert_eq!(browser.complaints(), [""; 0]);
    for wrong in [
        "<img src='http://elsewhere.example/a.png'>",
        "<img src='file:///a.png'>",
        "<script>draw()</script>",
        "<link rel='stylesheet' href='http://elsewhere.example/a.css'>",
    ] {
        fs::write(&file, whole.replace("</body>", &format!("{wrong}</body>"))).unwrap();
        browser.open_file(&file, 800, Scheme::Light);
        let complaints = browser.complaints();
        assert!(
            complaints
                .iter()
                .any(|it| it.contains("Content Security Policy")),
            "{wrong}: {complaints:?}"
        );
    }
}

#[test]
fn every_scenario_can_be_reached_with_the_keyboard() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let directory = Directory::new();
    let file = directory.file("lab.html");
    lab("--clients 20", &file);
    browser.open_file(&file, 400, Scheme::Light);
    let mut reached = Vec::new();
    for _ in 0..30 {
        browser.press("Tab");
        let focused = browser.value("document.activeElement.getAttribute('href')");
        let Some(target) = focused.as_str() else {
            break;
        };
        // The focus is visible.
        let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "{target}");
        reached.push(target.to_owned());
    }
    let sections =
        browser.texts("[...document.querySelectorAll('main section')].map(it => '#' + it.id)");
    assert_eq!(sections.len(), 9);
    assert_eq!(reached, [vec!["#results".to_owned()], sections].concat());
}
