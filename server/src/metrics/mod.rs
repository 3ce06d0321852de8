//! Figures for operators: the five metrics of S1, by OpenTelemetry, and the silo's own counters beside them.
//!
//! Nothing is counted in the path of a call. `runs_active` and `timers_pending` are counted from the rows when asked for
//! (`census`), so they are right after a restart as well; the others follow the committed events from the moment the node
//! started (`follow`), so that nothing is counted twice (FR-155).

mod census;
mod clocks;
mod follow;
mod groups;
mod silo;

pub use census::Census;
pub use clocks::ClockFigures;
pub use follow::follow;
pub use groups::Groups;

use grain_contract::TenantId;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Encoder, TextEncoder};
use std::sync::Arc;

/// Label sets of one instrument; more than this many tenants and definitions are put into one.
const LABEL_SETS_MAX: usize = 2_000;
const LATENCY_BUCKETS_S: [f64; 16] =
    [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0];
const PREFIX: &str = "connectsoft.factory.workflows";

pub struct Figures {
    registry: prometheus::Registry,
    // Instruments live as long as their provider.
    _provider: SdkMeterProvider,
    step_latency: Histogram<f64>,
    compensations: Counter<u64>,
    definition_rejections: Counter<u64>,
    runs: Counter<u64>,
    census: Arc<Census>,
    groups: Arc<Groups>,
    clocks: ClockFigures,
}

impl Figures {
    /// # Errors
    /// Two instruments with one name: a fault in this file.
    pub fn new() -> anyhow::Result<Arc<Self>> {
        let registry = prometheus::Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .without_target_info()
            .without_units()
            .without_counter_suffixes()
            .build()?;
        let provider = SdkMeterProvider::builder()
            .with_reader(exporter)
            .with_view(|_: &opentelemetry_sdk::metrics::Instrument| {
                opentelemetry_sdk::metrics::Stream::builder().with_cardinality_limit(LABEL_SETS_MAX).build().ok()
            })
            .build();
        let meter = provider.meter("granary");
        let census = Arc::new(Census::default());
        let seen = Arc::clone(&census);
        let _ = meter
            .i64_observable_up_down_counter(format!("{PREFIX}.runs_active"))
            .with_unit("{run}")
            .with_description("Workflow runs by state.")
            .with_callback(move |observer| seen.observe_runs(observer))
            .build();
        let seen = Arc::clone(&census);
        let _ = meter
            .i64_observable_up_down_counter(format!("{PREFIX}.timers_pending"))
            .with_unit("{timer}")
            .with_description("Timers not yet fired.")
            .with_callback(move |observer| seen.observe_timers(observer))
            .build();
        Ok(Arc::new(Self {
            step_latency: meter
                .f64_histogram(format!("{PREFIX}.step_latency"))
                .with_unit("s")
                .with_description("Time from StepReady to a terminal step state.")
                .with_boundaries(LATENCY_BUCKETS_S.to_vec())
                .build(),
            compensations: meter
                .u64_counter(format!("{PREFIX}.compensations"))
                .with_unit("{run}")
                .with_description("Compensations started and their outcome.")
                .build(),
            definition_rejections: meter
                .u64_counter(format!("{PREFIX}.definition_rejections"))
                .with_unit("{definition}")
                .with_description("Definitions rejected at validation or load.")
                .build(),
            runs: meter
                .u64_counter("granary.runs_total")
                .with_unit("{run}")
                .with_description("Runs started and ended, by what happened.")
                .build(),
            registry,
            _provider: provider,
            census,
            groups: Arc::default(),
            clocks: ClockFigures::default(),
        }))
    }

    /// A document or release was refused. `reason`: validation, policy, hash, conflict.
    pub fn definition_rejected(&self, tenant: &TenantId, reason: &'static str) {
        let labels = [KeyValue::new("tenant", tenant.to_string()), KeyValue::new("reason", reason)];
        self.definition_rejections.add(1, &labels);
    }

    pub fn census(&self) -> &Arc<Census> {
        &self.census
    }

    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    pub fn clocks(&self) -> &ClockFigures {
        &self.clocks
    }

    /// Everything in Prometheus' text form.
    ///
    /// # Errors
    /// A metric family that cannot be written; names it.
    pub fn text(&self, silo: &cluster::MetricsSnapshot) -> Result<String, prometheus::Error> {
        let mut bytes = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut bytes)?;
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        silo::write(silo, &mut text);
        self.groups.write(&mut text);
        self.clocks.write(&mut text);
        Ok(text)
    }
}
