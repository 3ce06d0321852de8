//! Kind `run` (in work).
use super::KindOptions;
use super::methods::run::KIND;
use grain_contract::{Corrupt, Grain, GrainId, GrainKind, GrainType, Row};

pub struct RunType {
    options: KindOptions,
}

impl RunType {
    pub fn new(options: KindOptions) -> Self {
        Self { options }
    }
}

impl GrainType for RunType {
    fn kind(&self) -> GrainKind {
        GrainKind::new(KIND)
    }

    fn load(&self, _: &GrainId, _: Vec<Row>) -> Result<Box<dyn Grain>, Corrupt> {
        Err(Corrupt { what: format!("in work: {:?}", self.options) })
    }
}
