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
use std::time::Duration;
use tonic::service::Routes;
use tonic::{Request, Status};
use tonic_health::ServingStatus;

/// How often the health service looks at the silo.
const HEALTH_EVERY: Duration = Duration::from_millis(500);

/// All services of a node, reflection and health among them.
///
/// # Errors
/// The descriptor set does not decode: a fault of the build.
pub fn routes(api: &Api) -> anyhow::Result<Routes> {
    let engine = WorkflowEngineServer::new(engine::Engine(api.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let run_control = RunControlServer::new(run_control::RunControl(api.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let workers = WorkersServer::new(workers::WorkerService(api.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let cluster = ClusterServer::new(cluster::Cluster(api.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let skills = SkillsServer::new(skills::Skills(api.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(granary_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(report_health(api.clone(), reporter));
    Ok(Routes::new(engine)
        .add_service(run_control)
        .add_service(workers)
        .add_service(cluster)
        .add_service(skills)
        .add_service(health)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?))
}

/// Keeps the standard health service in step with the silo, until the node stops: then nothing is served any more.
async fn report_health(api: Api, reporter: tonic_health::server::HealthReporter) {
    loop {
        let status = if api.health().ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        set_health(&reporter, status).await;
        tokio::select! {
            () = tokio::time::sleep(HEALTH_EVERY) => {}
            () = api.stopping() => break,
        }
    }
    set_health(&reporter, ServingStatus::NotServing).await;
}

async fn set_health(reporter: &tonic_health::server::HealthReporter, status: ServingStatus) {
    const SERVICES: [&str; 5] =
        ["", "granary.v1.WorkflowEngine", "granary.v1.RunControl", "granary.v1.Workers", "granary.v1.Cluster"];
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}

fn caller<T>(api: &Api, request: &Request<T>) -> Result<Caller, Status> {
    let config = api.live().get();
    let patience = Duration::from_secs(config.limits.default_deadline_seconds);
    Caller::of(request.metadata().as_ref(), config.development, patience).map_err(status::status)
}
