//! What goes wrong, drawn from the seed: where and for how long. When is said in `script`.

use super::Options;
use super::chance::Chance;
use super::founding;
use super::machine::name;
use super::net::{Slot, Weather};
use super::world::World;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const MACHINES_MAX: usize = 5;
/// Of 1,000 faults of the last 14 in 100: so many concern which machines there are.
const ROAMS: u64 = 350;

/// One thing that goes wrong, and is mended when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill(Slot),
    CutPower(Slot),
    KillAll,
    CutPowerOfAll,
    /// Everything of a process stands still; its machine's clocks go on.
    Freeze(Slot),
    /// The same of whoever owns a shard when it begins.
    FreezeOwner(u32),
    /// Cut from all others, both ways.
    Cut(Slot),
    /// It hears nobody, but is heard.
    Deafen(Slot),
    /// It is not heard, but hears.
    Mute(Slot),
    /// One way between two.
    CutWay(Slot, Slot),
    Lossy,
    Stormy,
    SlowDisk(Slot),
    SetClock(Slot, i64),
    /// The machine is off, and its volume never comes back: not while another loss is not made good.
    LoseVolume(Slot),
    /// A machine more, or one less for good.
    Join,
    Remove(Slot),
    /// Hands a shard's leadership on.
    Transfer(u32, Slot),
}

impl Fault {
    pub fn draw(chance: &mut Chance, options: &Options) -> Self {
        let slot = chance.below(options.nodes as u64) as Slot;
        let other = chance.below(options.nodes as u64) as Slot;
        match chance.below(100) {
            0..14 => Self::Kill(slot),
            14..22 => Self::CutPower(slot),
            22..25 => Self::KillAll,
            25..31 => Self::CutPowerOfAll,
            31..43 => Self::Freeze(slot),
            43..55 => Self::Cut(slot),
            55..60 => Self::Deafen(slot),
            60..65 => Self::Mute(slot),
            65..69 => Self::CutWay(slot, other),
            69..75 => Self::Lossy,
            75..81 => Self::Stormy,
            81..86 => Self::SlowDisk(slot),
            _ if options.roams && chance.permille(ROAMS) => match chance.below(3) {
                0 => Self::LoseVolume(slot),
                1 => Self::Join,
                _ => Self::Remove(slot),
            },
            86..90 => {
                let far = if chance.permille(150) { 60_000 } else { 2_000 };
                Self::SetClock(slot, chance.between(0..2 * far) as i64 - far as i64)
            }
            _ => Self::Transfer(chance.below(u64::from(options.shards)) as u32, slot),
        }
    }

    /// Microseconds.
    pub fn lasts(&self, chance: &mut Chance) -> u64 {
        match self {
            Self::LoseVolume(_) | Self::Kill(_) | Self::CutPower(_) | Self::KillAll | Self::CutPowerOfAll => {
                chance.between(10_000..2_500_000)
            }
            Self::FreezeOwner(_) => chance.between(20_000_000..60_000_000),
            Self::Freeze(_) if chance.permille(150) => chance.between(4_000_000..9_000_000),
            Self::Transfer(..) | Self::SetClock(..) | Self::Join | Self::Remove(_) => 1,
            _ => chance.between(200_000..4_000_000),
        }
    }

    pub fn begin(&self, world: &mut World) {
        let now_us = world.now_us;
        match self {
            Self::Kill(slot) => world.machines[*slot].kill(),
            Self::CutPower(slot) => world.machines[*slot].cut_power(),
            Self::LoseVolume(slot) if !world.removed.contains(slot) && founding::is_whole(world) => {
                world.machines[*slot].lose_volume();
            }
            Self::Join if world.machines.len() < MACHINES_MAX => world.add_machine(),
            Self::Remove(slot) if founding::is_whole(world) => remove(world, *slot),
            Self::LoseVolume(_) | Self::Join | Self::Remove(_) => {}
            Self::KillAll => world.machines.iter_mut().for_each(|machine| machine.kill()),
            Self::CutPowerOfAll => world.machines.iter_mut().for_each(|machine| machine.cut_power()),
            Self::Freeze(slot) => world.machines[*slot].freeze(true, now_us),
            Self::FreezeOwner(shard) => {
                if let Some(slot) = world.owner_of(*shard) {
                    world.machines[slot].freeze(true, now_us);
                    world.asleep.insert(*shard, slot);
                }
            }
            Self::SlowDisk(slot) => world.machines[*slot].sync_us_max.store(400_000, Relaxed),
            Self::SetClock(slot, by_ms) => world.machines[*slot].set_clock(*by_ms),
            Self::Transfer(shard, slot) => transfer(world, *shard, *slot),
            Self::Lossy => world.net.set_weather(Weather { lost: 100, repeated: 50, ..Weather::fine() }),
            Self::Stormy => world.net.set_weather(Weather {
                delay_us: 100..60_000,
                lost: 20,
                repeated: 100,
                held_up: 100,
                held_up_us: 10_000..900_000,
            }),
            Self::Cut(_) | Self::Deafen(_) | Self::Mute(_) | Self::CutWay(..) => self.cut(world, true),
        }
    }

    pub fn end(&self, world: &mut World) {
        match self {
            Self::Kill(slot) | Self::CutPower(slot) | Self::LoseVolume(slot) => restart(world, *slot),
            Self::KillAll | Self::CutPowerOfAll => (0..world.machines.len()).for_each(|slot| restart(world, slot)),
            Self::Freeze(slot) => world.wake(*slot),
            Self::FreezeOwner(shard) => {
                if let Some(slot) = world.asleep.remove(shard) {
                    world.wake(slot);
                }
            }
            Self::SlowDisk(slot) => world.machines[*slot].sync_us_max.store(2_000, Relaxed),
            Self::Lossy | Self::Stormy => world.net.set_weather(Weather::fine()),
            Self::Cut(_) | Self::Deafen(_) | Self::Mute(_) | Self::CutWay(..) => self.cut(world, false),
            Self::SetClock(..) | Self::Transfer(..) | Self::Join | Self::Remove(_) => {}
        }
    }

    fn cut(&self, world: &World, cut: bool) {
        let all = 0..world.machines.len();
        for (from, to) in all.clone().flat_map(|from| all.clone().map(move |to| (from, to))) {
            let is_meant = match self {
                Self::Cut(slot) => (from == *slot) != (to == *slot),
                Self::Deafen(slot) => to == *slot && from != *slot,
                Self::Mute(slot) => from == *slot && to != *slot,
                Self::CutWay(one, other) => from == *one && to == *other && one != other,
                _ => false,
            };
            if is_meant {
                world.net.cut(from, to, cut);
            }
        }
    }
}

fn restart(world: &mut World, slot: Slot) {
    let now_us = world.now_us;
    let machine = &mut world.machines[slot];
    if !machine.is_up()
        && let Err(error) = machine.start(now_us)
    {
        world.court.complain(format!("machine {slot} does not start: {error}"));
    }
}

/// Only where enough are left for three replicas.
fn remove(world: &mut World, slot: Slot) {
    let members = world.machines.iter().filter(|machine| machine.is_up() && !world.removed.contains(&machine.slot));
    if members.count() < 4 || world.removed.contains(&slot) {
        return;
    }
    world.removed.insert(slot);
    world.leaving.insert(slot, Arc::default());
    ask_to_remove(world);
}

/// Whoever wants a machine out asks until somebody says that it is.
pub fn ask_to_remove(world: &World) {
    for (slot, is_out) in world.leaving.iter().filter(|(_, is_out)| !is_out.load(Relaxed)) {
        let through = world
            .machines
            .iter()
            .find(|machine| machine.slot != *slot && !machine.is_frozen() && machine.membership().is_some());
        let Some((membership, handle)) = through.and_then(|machine| Some((machine.membership()?, machine.handle()?)))
        else {
            continue;
        };
        let (slot, is_out) = (*slot, is_out.clone());
        handle.spawn(async move { is_out.fetch_or(membership.remove_node(&name(slot)).await.is_ok(), Relaxed) });
    }
}

fn transfer(world: &World, shard: u32, slot: Slot) {
    let Some(to) = world.machines[slot].host().map(|host| host.node_id()) else { return };
    let Some(machine) = world.owner_of(shard).map(|owner| &world.machines[owner]) else { return };
    let (Some(host), Some(handle)) = (machine.host(), machine.handle()) else { return };
    let Some(shard) = host.shard(shard::ShardId(shard)) else { return };
    handle.spawn(async move { shard.transfer_leadership(to).await.ok() });
}
