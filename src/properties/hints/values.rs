//! Header values with a known meaning.

use arbitrary::{Result, Unstructured};

/// A text and its meaning.
#[derive(Clone)]
pub(super) struct ModelValue {
    pub(super) text: Vec<u8>,
    pub(super) means: Meaning,
}

#[derive(Clone, Debug)]
pub(super) enum Meaning {
    Nothing,
    /// The digits before and after the decimal point.
    Number(String, String),
    /// Nanoseconds since 1970.
    HttpDate(i128),
    OtherDate(i128),
    /// Nanoseconds.
    Span(i128),
    /// A window of the structured field: the remaining requests, if given, and the seconds until it refills.
    Window(Option<u64>, u64),
}

impl std::fmt::Debug for ModelValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.text);
        write!(f, "{text:?} ({:?})", self.means)
    }
}

const SECOND: i128 = 1_000_000_000;

/// Values that are in the past, signed, in other notations, or no numbers.
const UNREADABLE: &[&[u8]] = &[
    b"",
    b"-1",
    b"+1",
    b"1e3",
    b"NaN",
    b"inf",
    b"0x10",
    b"1,5",
    b"1.2.3",
    b".",
    b"soon",
    b"1 2",
    b"\xff",
    b"1\xc3\xbc",
    b"-5s",
    b"+5s",
    b"5s ago",
    b"Sun, 31 Feb 1995 12:00:00 GMT",
    b"100000-01-01T00:00:00Z",
    b"1_000",
    b"infinity",
    b"Sun, 06 Nov 100000 12:00:00 GMT",
];

impl ModelValue {
    fn new(text: String, means: Meaning) -> Self {
        let text = text.into_bytes();
        Self { text, means }
    }

    pub(super) fn window(text: Vec<u8>, left: Option<u64>, reset: u64) -> Self {
        let means = Meaning::Window(left, reset);
        Self { text, means }
    }
}

/// Returns a value in any of the forms. Dates are close to `now`, in seconds since 1970.
pub(super) fn model_value(input: &mut Unstructured<'_>, now: i128) -> Result<ModelValue> {
    let mut value = match input.int_in_range(0..=9)? {
        0 => {
            let text = input.choose(UNREADABLE)?.to_vec();
            let means = Meaning::Nothing;
            ModelValue { text, means }
        }
        1 => number(digits(input, 24)?, String::new()),
        2 => number(digits(input, 11)?, digits(input, 12)?),
        3 => {
            let near = now + i128::from(input.int_in_range(-5..=5000)?);
            number(near.max(0).to_string(), String::new())
        }
        4 => {
            let near = now * 1000 + i128::from(input.int_in_range(-5000..=5_000_000)?);
            number(near.max(0).to_string(), String::new())
        }
        5 | 6 => date(input, now)?,
        7 => span(input)?,
        _ => number(input.int_in_range(0..=99_999)?.to_string(), String::new()),
    };
    if input.ratio(1, 8)? {
        let spaces = input.choose(&[(" ", ""), ("", "  "), ("\t", " ")])?;
        value.text.splice(0..0, spaces.0.bytes());
        value.text.extend(spaces.1.bytes());
    }
    Ok(value)
}

/// Returns 1 to `most` digits.
pub(super) fn digits(input: &mut Unstructured<'_>, most: usize) -> Result<String> {
    let length = input.int_in_range(1..=most)?;
    let digits = (0..length).map(|_| input.int_in_range(b'0'..=b'9').map(char::from));
    digits.collect()
}

fn number(whole: String, fraction: String) -> ModelValue {
    let text = match &fraction[..] {
        "" => whole.clone(),
        _ => format!("{whole}.{fraction}"),
    };
    ModelValue::new(text, Meaning::Number(whole, fraction))
}

fn date(input: &mut Unstructured<'_>, now: i128) -> Result<ModelValue> {
    // The years that all forms can express. One form has only two digits for the year.
    let last_second = 3_155_759_999;
    let now = now.clamp(0, last_second);
    let seconds = now + i128::from(input.int_in_range(-100_000..=100_000)?);
    let seconds = seconds.clamp(0, last_second);
    let time = Calendar::of(seconds as u64);
    let Calendar {
        year,
        month,
        day,
        weekday,
        hour,
        minute,
        second,
    } = time;
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    let (name, short) = (WEEKDAYS[weekday], &WEEKDAYS[weekday][..3]);
    let month_name = MONTHS[month - 1];
    let form = input.int_in_range(0..=5)?;
    if form > 2 {
        let (zone, offset) = *input.choose(&[("Z", 0), ("+02:00", 7200), ("-00:30", -1800)])?;
        let (fraction, more) = *input.choose(&[("", 0), (".25", SECOND / 4), (".000000001", 1)])?;
        let text = format!("{year}-{month:02}-{day:02}T{clock}{fraction}{zone}");
        let moment = (seconds - offset) * SECOND + more;
        return Ok(ModelValue::new(text, Meaning::OtherDate(moment)));
    }
    // RFC 9110 §5.6.7.
    let text = match form {
        0 => format!("{short}, {day:02} {month_name} {year} {clock} GMT"),
        1 => format!(
            "{name}, {day:02}-{month_name}-{:02} {clock} GMT",
            year % 100
        ),
        _ => format!("{short} {month_name} {day:2} {clock} {year}"),
    };
    Ok(ModelValue::new(text, Meaning::HttpDate(seconds * SECOND)))
}

/// Returns a duration such as `6m0s`.
fn span(input: &mut Unstructured<'_>) -> Result<ModelValue> {
    let number = i128::from(input.int_in_range(0..=9999_u32)?);
    let seconds = i128::from(input.int_in_range(0..=59_u32)?);
    let (text, length) = match input.int_in_range(0..=5)? {
        0 => (format!("{number}ms"), number * SECOND / 1000),
        1 => (
            format!("{number}m{seconds}s"),
            (number * 60 + seconds) * SECOND,
        ),
        2 => (format!("{number}.5s"), number * SECOND + SECOND / 2),
        3 => (format!("{number}h"), number * 3600 * SECOND),
        4 => (
            format!("{number}h0m{seconds}s"),
            (number * 3600 + seconds) * SECOND,
        ),
        _ => (format!("{number}s"), number * SECOND),
    };
    Ok(ModelValue::new(text, Meaning::Span(length)))
}

const WEEKDAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

struct Calendar {
    year: u64,
    month: usize,
    day: u64,
    weekday: usize,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Calendar {
    /// Counts years, months and days from 1970 on.
    fn of(seconds: u64) -> Self {
        let days = seconds / 86_400;
        let (mut year, mut left) = (1970, days);
        let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        while left >= 365 + u64::from(is_leap(year)) {
            left -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let mut month = 1;
        loop {
            let length = match month {
                2 => 28 + u64::from(is_leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            if left < length {
                break;
            }
            left -= length;
            month += 1;
        }
        Self {
            year,
            month,
            day: left + 1,
            weekday: (days % 7) as usize,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }
}
