//! The operators of the public table, with their number of arguments. `log` is left out: it writes to standard output.

/// What the guard must know of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Arguments are evaluated, then the operator is applied.
    Plain,
    /// Plain, and its arguments are compared or computed with as numbers.
    Numeric,
    /// `if`, `and`, `or`: evaluates only the arguments it needs.
    Lazy,
    Var,
    Missing,
    MissingSome,
    /// First argument gives a list, the second is evaluated once an element.
    Iterator,
    Reduce,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operator {
    pub name: &'static str,
    pub shape: Shape,
    pub arguments_min: usize,
    pub arguments_max: usize,
}

const ANY: usize = usize::MAX;

const fn op(name: &'static str, shape: Shape, arguments_min: usize, arguments_max: usize) -> Operator {
    Operator { name, shape, arguments_min, arguments_max }
}

const OPERATORS: [Operator; 34] = [
    op("==", Shape::Numeric, 2, 2),
    op("!=", Shape::Numeric, 2, 2),
    op("===", Shape::Numeric, 2, 2),
    op("!==", Shape::Numeric, 2, 2),
    op("!", Shape::Plain, 1, 1),
    op("!!", Shape::Plain, 1, 1),
    op("<", Shape::Numeric, 2, 3),
    op("<=", Shape::Numeric, 2, 3),
    op(">", Shape::Numeric, 2, 3),
    op(">=", Shape::Numeric, 2, 3),
    op("+", Shape::Numeric, 0, ANY),
    op("-", Shape::Numeric, 1, 2),
    op("*", Shape::Numeric, 1, ANY),
    op("/", Shape::Numeric, 2, 2),
    op("%", Shape::Numeric, 2, 2),
    op("max", Shape::Numeric, 1, ANY),
    op("min", Shape::Numeric, 1, ANY),
    op("merge", Shape::Plain, 0, ANY),
    op("in", Shape::Numeric, 2, 2),
    op("cat", Shape::Plain, 0, ANY),
    op("substr", Shape::Plain, 2, 3),
    op("var", Shape::Var, 0, 2),
    op("missing", Shape::Missing, 0, ANY),
    op("missing_some", Shape::MissingSome, 2, 2),
    op("if", Shape::Lazy, 0, ANY),
    op("?:", Shape::Lazy, 0, ANY),
    op("or", Shape::Lazy, 1, ANY),
    op("and", Shape::Lazy, 1, ANY),
    op("map", Shape::Iterator, 2, 2),
    op("filter", Shape::Iterator, 2, 2),
    op("reduce", Shape::Reduce, 3, 3),
    op("all", Shape::Iterator, 2, 2),
    op("some", Shape::Iterator, 2, 2),
    op("none", Shape::Iterator, 2, 2),
];

pub(super) fn find(name: &str) -> Option<Operator> {
    OPERATORS.iter().copied().find(|operator| operator.name == name)
}

/// Operators whose result is a number or a boolean, whatever their arguments are.
pub(super) fn gives_scalar(name: &str) -> bool {
    find(name).is_some_and(|operator| operator.shape == Shape::Numeric) || matches!(name, "!" | "!!")
}

/// Operators whose result is computed by 64-bit floats.
pub(super) fn computes(name: &str) -> bool {
    matches!(name, "+" | "-" | "*" | "/" | "%" | "max" | "min")
}

impl Operator {
    pub(super) fn arguments(&self) -> String {
        match (self.arguments_min, self.arguments_max) {
            (min, max) if min == max => format!("{min}"),
            (min, ANY) => format!("at least {min}"),
            (min, max) => format!("{min} to {max}"),
        }
    }
}
