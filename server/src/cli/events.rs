//! `granary events tail`.

use super::client::Client;
use super::out::say;
use super::style::Style;
use super::table::moment;
use super::{Common, Exit, Failure, board, out, signals};
use clap::Subcommand;
use granary_proto::v1::{self, subscribe_events_request::Request};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Acknowledgements on their way.
const OUTGOING: usize = 16;
const DATA_CHARS_MAX: usize = 120;

#[derive(Subcommand, Debug)]
pub enum EventsCommand {
    /// Print events as they come
    #[command(after_help = "Examples:\n  granary events tail --from earliest --type workflow-run-completed\n  \
                            granary events tail --cursor audit --format json   (goes on where it stopped)")]
    Tail(TailArgs),
}

#[derive(clap::Args, Debug)]
pub struct TailArgs {
    /// Name of a durable cursor: what was printed is acknowledged, and the next time it goes on from there.
    #[arg(long, default_value = "")]
    pub cursor: String,
    /// Where to begin: earliest, latest, or a cursor from an event.
    #[arg(long, default_value = "latest")]
    pub from: String,
    /// Only events of this type, e.g. step-ready; may be given more than once.
    #[arg(long = "type")]
    pub types: Vec<String>,
    /// Only events of this run.
    #[arg(long, default_value = "")]
    pub run: String,
    /// Stop after so many events.
    #[arg(long)]
    pub limit: Option<usize>,
}

pub async fn run(common: &Common, command: EventsCommand) -> Result<Exit, Failure> {
    let EventsCommand::Tail(args) = command;
    let client = Client::connect(common).await?;
    let stop = signals::stop();
    let (requests, outgoing) = mpsc::channel(OUTGOING);
    let subscribe =
        v1::Subscribe { cursor_name: args.cursor.clone(), from: args.from, types: args.types, run_id: args.run };
    let send = |request| requests.try_send(v1::SubscribeEventsRequest { request: Some(request) });
    // The channel is new: there is room.
    let _ = send(Request::Subscribe(subscribe));
    let mut stream = client.engine().subscribe_events(ReceiverStream::new(outgoing)).await?.into_inner();
    let style = Style::of_stdout();
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let message = tokio::select! {
            message = stream.message() => message?,
            () = stop.cancelled() => return Ok(Exit::Good),
        };
        let Some(response) = message else {
            return Err(Failure {
                exit: Exit::Unreachable,
                code: "closed".to_owned(),
                message: "the server ended the stream".to_owned(),
            });
        };
        let taken = response.events.len().min(left);
        for event in &response.events[..taken] {
            print_event(event, common.is_json(), style);
        }
        // Not acknowledged: some of it may not have been read.
        if out::is_closed() {
            return Ok(Exit::Good);
        }
        left -= taken;
        if let Some(last) = response.events[..taken].last() {
            // What is printed is done with. A later acknowledgement covers one that found no room.
            let _ = send(Request::Acknowledge(last.cursor.clone()));
        }
    }
    // The last acknowledgement must be read by the server before the stream closes: closing our half first says that no more comes.
    drop(requests);
    let rest = async { while let Ok(Some(_)) = stream.message().await {} };
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), rest).await;
    Ok(Exit::Good)
}

fn print_event(event: &v1::EventEnvelope, json: bool, style: Style) {
    if json {
        // One object a line: programs read lines.
        if let Ok(line) = serde_json::to_string(event) {
            say!("{line}");
        }
        return;
    }
    let name = event.r#type.rsplit('.').next().unwrap_or(&event.r#type);
    let data = event.data.as_ref().map(board::one_line).unwrap_or_default();
    let data = style.dim(&super::table::cut(&data, DATA_CHARS_MAX));
    say!("{}  {:<24} {} #{:<4} {data}", moment(event.time.as_ref()), name, event.subject, event.sequence);
}
