//! The page of the guide about presets, against the presets that exist.

use regex::Regex;
use serde_json::Value;

const PAGE: &str = include_str!("../../docs/guide/presets.md");

/// The names of all presets, as in files. Another test compares the schema with the type.
fn presets() -> Vec<String> {
    let schema: Value =
        serde_json::from_str(include_str!("../../docs/steady.schema.json")).unwrap();
    let names = schema["$defs"]["Preset"]["oneOf"].as_array().unwrap();
    names
        .iter()
        .map(|it| it["const"].as_str().unwrap().to_owned())
        .collect()
}

/// What the page says of a service: all between its heading and the next one.
fn section(preset: &str) -> Option<&'static str> {
    let mut sections = PAGE.split("\n# ").skip(1);
    let (_, section) = sections.find_map(|section| {
        let (heading, section) = section.split_once('\n')?;
        (heading.to_lowercase() == preset).then_some((heading, section))
    })?;
    Some(section)
}

#[test]
fn every_preset_has_a_section_with_documents_and_a_date() {
    let presets = presets();
    assert!(presets.len() >= 6, "{presets:?}");
    // A title, an address, or a path in a repository.
    let document =
        Regex::new(r"\*[A-Z][^*]+\*|[a-z]+\.(com|io|org)/|`[a-z_./-]+\.[a-z]+`").unwrap();
    let months =
        "January|February|March|April|May|June|July|August|September|October|November|December";
    let read = Regex::new(&format!(
        r"Read\s+in\s+(stored\s+copies,\s+)?({months})\s+20\d\d"
    ))
    .unwrap();
    for preset in presets {
        let section = section(&preset).unwrap_or_else(|| panic!("no section: {preset}"));
        let (rules, documents) = (section.split_once("\nDocuments: "))
            .unwrap_or_else(|| panic!("no documents: {preset}"));
        assert!(
            rules.contains("\n| response | meaning | why |\n"),
            "{preset}"
        );
        assert!(document.is_match(documents), "no document: {preset}");
        assert!(read.is_match(documents), "no date: {preset}");
        let link = format!("](#{preset}) |");
        assert!(
            PAGE.contains(&link),
            "not in the table at the beginning: {preset}"
        );
    }
}
