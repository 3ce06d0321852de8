//! The gRPC skin: one file a service. Every service has the same message limits (FR-190).

mod cluster;
mod engine;
mod run_control;
mod skills;
pub mod status;
mod workers;

use crate::api::Api;
use crate::tenant::Caller;
use grain_contract::limits::MESSAGE_BYTES_MAX;
use granary_proto::v1::cluster_server::ClusterServer;
use granary_proto::v1::run_control_server::RunControlServer;
use granary_proto::v1::skills_server::SkillsServer;
use granary_proto::v1::workers_server::WorkersServer;
use granary_proto::v1::workflow_engine_server::WorkflowEngineServer;
use std::convert::Infallible;
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tonic::{Request, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// How often the health service looks at the silo.
const HEALTH_EVERY: Duration = Duration::from_millis(500);

/// The service with the message limits that all have.
macro_rules! limited {
    ($service:expr) => {
        $service.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX)
    };
}

/// Services and their names. Health and reflection go by these, so that none can be served and forgotten there.
#[derive(Default)]
struct Served {
    routes: RoutesBuilder,
    names: Vec<&'static str>,
}

impl Served {
    fn with<S>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
        S::Response: axum::response::IntoResponse,
        S::Future: Send + 'static,
    {
        self.names.push(S::NAME);
        self.routes.add_service(service);
        self
    }
}

/// All services of a node, reflection and health among them.
///
/// # Errors
/// The descriptor set does not decode: a fault of the build.
pub fn routes(api: &Api) -> anyhow::Result<Routes> {
    let served = Served::default()
        .with(limited!(WorkflowEngineServer::new(engine::Engine(api.clone()))))
        .with(limited!(RunControlServer::new(run_control::RunControl(api.clone()))))
        .with(limited!(WorkersServer::new(workers::WorkerService(api.clone()))))
        .with(limited!(ClusterServer::new(cluster::Cluster(api.clone()))))
        .with(limited!(SkillsServer::new(skills::Skills(api.clone()))));
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(report_health(api.clone(), reporter, served.names.clone()));
    let mut served = served.with(health);
    let names = served.names.clone();
    // What else the descriptors hold is served elsewhere: at other ports, or by services that are asked from here.
    let reflection = || {
        let sets = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(granary_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        names.iter().fold(sets, |builder, name| builder.with_service_name(*name))
    };
    served.routes.add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?);
    Ok(served.routes.routes())
}

/// Keeps the standard health service in step with the silo, until the node stops: then nothing is served any more.
async fn report_health(api: Api, reporter: HealthReporter, names: Vec<&'static str>) {
    loop {
        let status = if api.health().ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        set_health(&reporter, &names, status).await;
        tokio::select! {
            () = tokio::time::sleep(HEALTH_EVERY) => {}
            () = api.stopping() => break,
        }
    }
    set_health(&reporter, &names, ServingStatus::NotServing).await;
}

/// The empty name stands for the whole.
async fn set_health(reporter: &HealthReporter, names: &[&'static str], status: ServingStatus) {
    for service in names.iter().chain(&[""]) {
        reporter.set_service_status(*service, status).await;
    }
}

fn caller<T>(api: &Api, request: &Request<T>) -> Result<Caller, Status> {
    let config = api.live().get();
    let patience = Duration::from_secs(config.limits.default_deadline_seconds);
    Caller::of(request.metadata().as_ref(), config.development, patience).map_err(status::status)
}
