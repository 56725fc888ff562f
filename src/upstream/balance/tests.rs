use proptest::prelude::*;

use super::*;

fn endpoints(count: u64) -> Vec<Arc<Endpoint>> {
    (0..count).map(|uid| Arc::new(Endpoint::new(uid, ([127, 0, 0, 1], 80).into()))).collect()
}

fn counts(policy: &LoadBalancing, endpoints: &[Arc<Endpoint>], requests: usize) -> Vec<usize> {
    let (mut turn, mut random) = (0, Random::new(7));
    let mut counts = vec![0; endpoints.len()];
    for _ in 0..requests {
        counts[choose(policy, endpoints, &mut turn, &mut random, &[]).unwrap()] += 1;
    }
    counts
}

#[test]
fn round_robin_is_exact() {
    assert_eq!(counts(&LoadBalancing::RoundRobin, &endpoints(3), 300), [100, 100, 100]);
}

#[test]
fn random_reaches_all_evenly() {
    for count in counts(&LoadBalancing::Random, &endpoints(4), 40_000) {
        assert!((9_500..10_500).contains(&count), "{count}");
    }
}

#[test]
fn least_request_avoids_the_busy_one() {
    let endpoints = endpoints(3);
    endpoints[1].in_flight.store(100, Ordering::Relaxed);
    assert_eq!(counts(&LoadBalancing::LeastRequest, &endpoints, 1000)[1], 0);
}

#[test]
fn endpoints_set_aside_are_the_last_resort() {
    let endpoints = endpoints(2);
    endpoints[0].connect_failed();
    for policy in [LoadBalancing::RoundRobin, LoadBalancing::Random, LoadBalancing::LeastRequest] {
        assert_eq!(counts(&policy, &endpoints, 100), [0, 100]);
    }
    endpoints[1].connect_failed();
    assert!(counts(&LoadBalancing::RoundRobin, &endpoints, 100).iter().all(|&c| c > 0));
    endpoints[0].connected();
    assert_eq!(counts(&LoadBalancing::RoundRobin, &endpoints, 100), [100, 0]);
}

#[test]
fn tried_endpoints_are_not_chosen_again() {
    let endpoints = endpoints(3);
    let (mut turn, mut random) = (0, Random::new(1));
    let mut tried = Vec::new();
    for _ in 0..3 {
        let i = choose(&LoadBalancing::RoundRobin, &endpoints, &mut turn, &mut random, &tried).unwrap();
        assert!(!tried.contains(&endpoints[i].uid));
        tried.push(endpoints[i].uid);
    }
    assert_eq!(choose(&LoadBalancing::RoundRobin, &endpoints, &mut turn, &mut random, &tried), None);
}

#[test]
fn weights_interleave() {
    let weights = Weights::new(&[9, 1]).unwrap();
    let picks: Vec<usize> = (0..20).map(|turn| weights.pick(turn)).collect();
    assert_eq!(picks.iter().filter(|&&p| p == 1).count(), 2);
    assert!(Weights::new(&[0, 0]).is_none());
}

proptest! {
    #[test]
    fn weights_give_exact_shares(weights in prop::collection::vec(0u32..50, 1..8)) {
        prop_assume!(weights.iter().any(|&w| w > 0));
        let prepared = Weights::new(&weights).unwrap();
        let mut counts = vec![0u64; weights.len()];
        for turn in 0..prepared.total() {
            counts[prepared.pick(turn)] += 1;
        }
        let sum: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        for (count, &weight) in counts.iter().zip(&weights) {
            prop_assert_eq!(count * sum, u64::from(weight) * prepared.total());
        }
    }
}
