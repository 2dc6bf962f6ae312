//! What must be equal besides the tokens for two requests to share KV.

/// Isolates what must not be shared: adapter, salt, model version. Two namespaces are equal exactly if their bytes
/// are; the default one has none.
///
/// # Examples
/// ```
/// use radix_rs::Namespace;
/// let adapter = Namespace::from_parts([("adapter", "x")]);
/// let salt = Namespace::from_parts([("salt", "x")]);
/// assert_ne!(adapter, salt);
/// assert_ne!(adapter, Namespace::from("x"));
/// assert!(Namespace::default().is_default());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Namespace(Option<Box<[u8]>>);

impl Namespace {
    /// A namespace from tagged parts. Every part is written with its lengths, so no two different lists of parts
    /// give the same namespace.
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut bytes = b"p".to_vec();
        for (kind, value) in parts {
            for text in [kind, value] {
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
        Namespace(Some(bytes.into()))
    }

    /// A namespace with exactly these bytes, for callers with an encoding of their own.
    pub fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Namespace(Some(bytes.into()))
    }

    /// Whether this is the default namespace.
    pub fn is_default(&self) -> bool {
        self.0.is_none()
    }

    /// The bytes that decide equality; `None` for the default namespace.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

impl From<&str> for Namespace {
    fn from(text: &str) -> Self {
        Namespace(Some([b"s", text.as_bytes()].concat().into()))
    }
}
