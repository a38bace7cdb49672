//! Holds the sources to ARCHITECTURE.md: its layers, its limits, and the names that it mentions.
//!
//! The layers are read from the list in ARCHITECTURE.md, so the page and this test cannot differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A file over this many lines of code asks for a second concept to move out.
const MAX_LINES: usize = 350;
/// How many `#[cold]` and `#[inline(always)]` the crate may have. Each needs a measured figure beside it.
const MAX_TUNED: usize = 6;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One source file of the library.
struct Source {
    /// Relative to `src/`.
    path: String,
    text: String,
}

impl Source {
    /// The top-level module that the file belongs to.
    fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.contains("/tests/")
    }

    /// The lines of code with their numbers: no comments, no blank lines, no unit tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        lines
            .take_while(|(_, line)| !is_start_of_tests(&self.text, line))
            .map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
            .filter(|(_, line)| !line.trim().is_empty())
    }
}

/// Unit tests come last in a file: `mod tests {` below `#[cfg(test)]`.
fn is_start_of_tests(text: &str, line: &str) -> bool {
    line == "mod tests {" && text.contains("#[cfg(test)]\nmod tests {")
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut folders = vec![src.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(&src).unwrap();
                sources.push(Source {
                    path: relative.to_str().unwrap().replace('\\', "/"),
                    text: read(&path),
                });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

/// The layer of each top-level module, from the list below the heading "Layers".
fn layers(architecture: &str) -> BTreeMap<String, usize> {
    let (_, section) = architecture
        .split_once("## Layers")
        .expect("ARCHITECTURE.md has a section Layers");
    let list = section.split("```").nth(1).expect("Layers has a list");
    let mut layers = BTreeMap::new();
    for line in list.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let (number, rest) = line.split_once("  ").expect("a number, then modules");
        let number = number
            .trim()
            .parse()
            .expect("a layer begins with its number");
        // The modules end where three spaces begin a description.
        let modules = rest.trim_start().split("   ").next().unwrap_or_default();
        for module in modules.split_whitespace() {
            layers.insert(module.to_owned(), number);
        }
    }
    layers
}

/// What follows each `crate::` in a line, and in the lines of a `use crate::{…}` that begins there.
fn crate_paths(code: &str) -> Vec<&str> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate` and names that merely end in "crate" are something else.
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || "_$".contains(before)) {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => paths.extend(first_segments(group)),
            None => paths.push(first_segment(rest)),
        }
    }
    paths
}

fn first_segment(path: &str) -> &str {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
    &path[..end.unwrap_or(path.len())]
}

/// The first segments of the members of a group: `a` and `c` of `a::b, c::{d, e}}`.
fn first_segments(group: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    let mut depth = 0;
    let mut start = Some(0);
    for (at, c) in group.char_indices() {
        match c {
            '}' if depth == 0 => {
                segments.extend(start.map(|start| group[start..at].trim()));
                break;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                segments.extend(start.map(|start| group[start..at].trim()));
                start = Some(at + 1);
            }
            _ => {}
        }
    }
    let segments = segments.into_iter().map(first_segment);
    segments.filter(|segment| !segment.is_empty()).collect()
}

/// The edges that break the rule, each with file, line and reason.
fn wrong_edges(sources: &[Source], layers: &BTreeMap<String, usize>) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        let module = source.module();
        if module == "lib" || source.is_test() {
            continue;
        }
        let Some(own) = layers.get(module) else {
            wrong.push(format!("src/{}: `{module}` has no layer", source.path));
            continue;
        };
        // Joined, so that a group over several lines is one text; each line keeps its number.
        let code: Vec<_> = source.code().collect();
        for (index, (number, line)) in code.iter().enumerate() {
            let rest: Vec<_> = code[index..].iter().map(|(_, line)| *line).collect();
            let text = if line.contains("crate::{") {
                rest.join(" ")
                    .split(';')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            } else {
                (*line).to_owned()
            };
            for target in crate_paths(&text) {
                let at = format!("src/{}:{number}", source.path);
                match layers.get(target) {
                    _ if target == module => {}
                    None => wrong.push(format!(
                        "{at}: `crate::{target}` is no module: import from the module, not from the root"
                    )),
                    Some(layer) if layer < own => {}
                    Some(layer) => wrong.push(format!(
                        "{at}: `{module}` (layer {own}) must not use `{target}` (layer {layer})"
                    )),
                }
            }
        }
    }
    wrong
}

#[test]
fn modules_use_only_layers_before_their_own() {
    let layers = layers(&read(&root().join("ARCHITECTURE.md")));
    let sources = sources();
    let modules: BTreeSet<_> = sources.iter().map(Source::module).collect();
    for module in layers.keys() {
        assert!(modules.contains(module.as_str()), "no module `{module}`");
    }
    let wrong = wrong_edges(&sources, &layers);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn an_edge_that_points_up_is_found_with_its_line() {
    let layers =
        layers("## Layers\n```\n1  clock  config   time\n2  host\n3  retry  throttle\n```\n");
    let found = |path: &str, text: &str| {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        wrong_edges(&[source], &layers).join("\n")
    };
    assert_eq!(found("host.rs", "use crate::clock;\n"), "");
    assert_eq!(
        found("host/table.rs", "// crate::retry\n/// crate::retry\n"),
        ""
    );
    assert_eq!(
        found(
            "host.rs",
            "#[cfg(test)]\nmod tests {\n    use crate::retry::X;\n}\n"
        ),
        ""
    );
    for (path, text, expected) in [
        (
            "host.rs",
            "\nuse crate::retry::Call;\n",
            "src/host.rs:2: `host` (layer 2) must not use `retry`",
        ),
        (
            "host.rs",
            "fn f() {\n    crate::throttle::f();\n}\n",
            "src/host.rs:2: ",
        ),
        (
            "host.rs",
            "use crate::{\n    clock::now,\n    retry::{Call, Other},\n};\n",
            "src/host.rs:1: `host`",
        ),
        (
            "throttle/gate.rs",
            "use crate::retry::X;\n",
            "must not use `retry` (layer 3)",
        ),
        (
            "config.rs",
            "use crate::clock::now;\n",
            "must not use `clock` (layer 1)",
        ),
        ("retry.rs", "use crate::Budget;\n", "import from the module"),
        ("other.rs", "", "`other` has no layer"),
    ] {
        let found = found(path, text);
        assert!(found.contains(expected), "{text:?}: {found:?}");
    }
}

#[test]
fn no_file_is_too_long() {
    for source in sources() {
        let lines = source.code().count();
        if !source.is_test() {
            assert!(
                lines <= MAX_LINES,
                "src/{}: {lines} lines of code",
                source.path
            );
        }
    }
}

#[test]
fn little_is_tuned_by_hand() {
    let sources = sources();
    let tuned = |source: &Source| {
        let code = source.code().map(|(_, line)| line);
        code.filter(|line| line.contains("#[cold]") || line.contains("inline(always)"))
            .count()
    };
    let total: usize = sources.iter().map(tuned).sum();
    assert!(total <= MAX_TUNED, "{total} attributes");
}

/// What stands between backticks, outside of code blocks.
fn quoted(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose
        .flat_map(|part| part.split('`').skip(1).step_by(2))
        .collect()
}

/// The rows of code blocks that say in which file something is: its name and the file.
fn located(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("```").skip(1).step_by(2);
    let rows = blocks.flat_map(str::lines).filter_map(|row| {
        let mut words = row.split_whitespace();
        let (name, file) = (words.next()?, words.next()?);
        is_path(file).then_some((name, file))
    });
    rows.collect()
}

/// Whether a file defines the last part of a name, as a function or as a type.
fn defines(file: &str, name: &str) -> bool {
    let Ok(text) = fs::read_to_string(root().join(file)) else {
        return false;
    };
    let name = name.rsplit("::").next().unwrap_or(name);
    let kinds = ["fn", "struct", "enum", "trait"];
    kinds.iter().any(|kind| {
        let needle = format!("{kind} {name}");
        text.match_indices(&needle).any(|(at, _)| {
            let rest = &text[at + needle.len()..];
            !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    })
}

fn is_path(name: &str) -> bool {
    let has_ending = [".rs", ".md", ".toml", ".txt", ".lua"].iter();
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    is_plain && (name.contains('/') || has_ending.clone().any(|ending| name.ends_with(ending)))
}

fn is_type(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric())
        && name.chars().any(|c| c.is_ascii_lowercase())
}

/// Types of other crates and words of Rust that the page may mention.
const FOREIGN: [&str; 7] = [
    "Arc",
    "ClientBuilder",
    "Drop",
    "Extensions",
    "HeaderMap",
    "Middleware",
    "Mutex",
];

fn is_defined(name: &str, sources: &[Source]) -> bool {
    let kinds = ["struct", "enum", "trait", "type"];
    let mut lines = sources.iter().flat_map(|source| source.text.lines());
    FOREIGN.contains(&name)
        || lines.any(|line| {
            kinds.iter().any(|kind| {
                let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                words.any(|word| word == *kind) && words.any(|word| word == name)
            })
        })
}

fn is_function(name: &str, sources: &[Source]) -> bool {
    let needle = format!("fn {name}");
    sources.iter().any(|source| {
        source.text.match_indices(&needle).any(|(at, _)| {
            let rest = &source.text[at + needle.len()..];
            rest.starts_with(['(', '<'])
        })
    })
}

/// What the page mentions and the project does not have.
fn unknown_names(page: &str, sources: &[Source]) -> Vec<String> {
    let mut unknown = Vec::new();
    for (name, file) in located(page) {
        if !defines(file, name) {
            unknown.push(format!("{name} in {file}"));
        }
    }
    for name in quoted(page) {
        let known = if is_path(name) {
            root().join(name).exists()
        } else if let Some((ty, method)) = name.split_once("::") {
            !is_type(ty) || (is_defined(ty, sources) && is_function(method, sources))
        } else {
            !is_type(name) || is_defined(name, sources)
        };
        if !known {
            unknown.push(name.to_owned());
        }
    }
    unknown
}

#[test]
fn every_file_and_type_of_architecture_md_exists() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let unknown = unknown_names(&page, &sources());
    assert!(unknown.is_empty(), "ARCHITECTURE.md names {unknown:?}");
    let lines = page.lines().count();
    assert!(lines <= 200, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn names_that_do_not_exist_are_found() {
    let page = "`Budget` `NoSuchType` `src/lib.rs` `src/none.rs` `Budget::builder` `Budget::none`\n\
                ```\nCall::no_such_step  src/retry.rs  x\nCall::start  src/nowhere.rs\n```\n`cargo test`";
    let unknown = unknown_names(page, &sources());
    let expected = [
        "Call::no_such_step in src/retry.rs",
        "Call::start in src/nowhere.rs",
        "NoSuchType",
        "src/none.rs",
        "Budget::none",
    ];
    assert_eq!(unknown, expected);
}
