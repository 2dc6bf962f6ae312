//! One Python class over the two atom types of the core.

/// The same thing for trees of 32-bit and of 64-bit atoms.
pub(crate) enum Atoms<N, W> {
    U32(N),
    U64(W),
}

/// An expression for whichever it is.
macro_rules! each {
    ($value:expr, $inner:ident => $call:expr) => {
        match $value {
            $crate::atoms::Atoms::U32($inner) => $call,
            $crate::atoms::Atoms::U64($inner) => $call,
        }
    };
}

/// An expression for whichever it is, kept apart by atom type again.
macro_rules! each_of {
    ($value:expr, $inner:ident => $call:expr) => {
        match $value {
            $crate::atoms::Atoms::U32($inner) => $crate::atoms::Atoms::U32($call),
            $crate::atoms::Atoms::U64($inner) => $crate::atoms::Atoms::U64($call),
        }
    };
}

pub(crate) use {each, each_of};
