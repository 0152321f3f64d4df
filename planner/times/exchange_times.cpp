#include "planner/times/exchange_times.h"

#include <algorithm>
#include <string>

#include "runtime/check.h"

namespace flatshard {
namespace {

// NCCL's src/graph/tuning.cc: the base latencies of rings with the protocols LL128 and Simple, and the steps
// of LL128 on NVLink and between nodes. LL128 carries 120 of 128 bytes.
constexpr double kBaseSimpleUs = 8.4, kBaseLl128Us = 14.0, kStepLl128LinkUs = 1.9, kStepLl128NetworkUs = 4.0;
constexpr double kShareOfLl128 = 120.0 / 128;
// An all-to-all is a set of messages, which reach 0.9 of a card (the range of published runs of alltoall_perf
// of nccl-tests is 0.8 to 0.95). A message starts after a step of the network (14 us) or of the link.
constexpr double kShareOfMessages = 0.9;

// Bytes per second of one GPU of a communicator, into and out of its node: the members on a node share the
// cards of as many GPUs, since other communicators of the same kind exchange at the same time.
double network_rate(const Cluster& c, const Members& members) {
  const double cards =
      static_cast<double>(c.nics_per_node) * members.on_node / static_cast<double>(c.node_gpus);
  return cards * c.nic_gbps * c.nic_efficiency * 1e9 / c.oversubscription(members.reach);
}

double link_rate(const Cluster& c) { return c.link_gbps * c.link_efficiency * 1e9; }

// One pass round a ring: N - 1 steps, of which nodes - 1 leave a node.
ExchangeTime ring(const Cluster& c, double bytes, const Members& members) {
  const double n = members.ranks, between = members.nodes() > 1 ? members.nodes() - 1 : 0,
               inside = n - 1 - between, received = bytes * (n - 1) / n;
  double rate = between > 0 ? network_rate(c, members) : link_rate(c);
  if (members.on_node > 1) rate = std::min(rate, link_rate(c));
  const double simple =
      1e-6 * (kBaseSimpleUs + inside * c.link_step_us + between * c.network_step_us) + received / rate;
  const double ll128 = 1e-6 * (kBaseLl128Us + inside * kStepLl128LinkUs + between * kStepLl128NetworkUs) +
                       received / (rate * kShareOfLl128);
  const double seconds = c.nvlink ? std::min(simple, ll128) : simple;
  return {.seconds = seconds, .on_network = between > 0, .bus_gbps = received / seconds * 1e-9};
}

ExchangeTime all_to_all(const Cluster& c, double bytes, const Members& members) {
  const double n = members.ranks, inside = bytes * (members.on_node - 1) / n,
               outside = bytes * (n - members.on_node) / n;
  Members one = members;  // every rank sends through its own card
  one.on_node = 1;
  const double on_links = inside / link_rate(c),
               on_network =
                   outside > 0 ? outside / (network_rate(c, one) / c.nic_efficiency * kShareOfMessages) : 0;
  const double start = 1e-6 * (kBaseSimpleUs + (outside > 0 ? c.network_step_us : c.link_step_us));
  const double seconds = start + std::max(on_links, on_network);
  return {.seconds = seconds, .on_network = outside > 0, .bus_gbps = (inside + outside) / seconds * 1e-9};
}

ExchangeTime at_rate(const Cluster& c, double received, bool outside, double rate) {
  const double seconds = 1e-6 * (outside ? c.network_step_us : c.link_step_us) + received / rate;
  return {.seconds = seconds, .on_network = outside, .bus_gbps = received / seconds * 1e-9};
}

ExchangeTime message(const Cluster& c, double bytes, const Members& members) {
  const bool outside = members.on_node == 1;
  return at_rate(c, bytes, outside, outside ? network_rate(c, members) : link_rate(c));
}

Members members_among(const std::vector<int>& hosts) {
  Members members{.ranks = static_cast<int>(hosts.size()), .on_node = 0};
  for (const int host : hosts) members.on_node += host == hosts.front() ? 1 : 0;
  const auto [least, most] = std::minmax_element(hosts.begin(), hosts.end());
  members.reach = *most - *least + 1;
  return members;
}

Members of_level(const Levels& levels, double reach, bool between_hosts) {
  if (between_hosts) return {.ranks = levels.between(), .on_node = levels.of_place().on_host, .reach = reach};
  return {.ranks = levels.inside,
          .on_node = std::min(levels.inside, levels.on_host),
          .reach = levels.inside > levels.on_host ? reach : 1};
}

}  // namespace

Members members_of(const RankLayout& layout, int rank, const ExchangeCall& call) {
  std::string name = call.communicator;
  const size_t at = name.find(" between ");  // hosts, or expert groups
  const bool between = at != std::string::npos;
  if (between) name.resize(at);
  if (name == "compute" || name == "gather" || name == "reduce" || name == "replicas") {
    const bool replicas = name == "replicas";
    const Members all =
        members_among(layout.hosts_of(replicas ? layout.replicas_of(rank) : layout.group_of(rank)));
    const RankLevels levels = layout.levels_of(rank);
    return of_level(replicas ? levels.replicas : levels.group, all.reach, between);
  }
  // Communicators of pipeline stages have the ranks with the same place in their stages.
  const int place = layout.data_rank(rank), width = layout.groups.ranks;
  std::vector<int> members;
  if (call.peer >= 0)
    members = {rank, place + call.peer * width};
  else
    for (int stage = 0; stage < layout.pipeline.stages; ++stage) members.push_back(place + stage * width);
  return members_among(layout.hosts_of(members));
}

ExchangeTime exchange_time(const Cluster& cluster, std::string_view verb, double bytes,
                           const Members& members) {
  if (verb == "reduce_scatter" && cluster.cpu && cluster.cpu->reduces > 0)
    return at_rate(cluster, bytes * (members.ranks - 1) / members.ranks, members.nodes() > 1,
                   cluster.cpu->reduces);
  if (verb == "all_gather" || verb == "reduce_scatter" || verb == "broadcast")
    return ring(cluster, bytes, members);
  if (verb == "all_to_all") return all_to_all(cluster, bytes, members);
  check(verb == "send" || verb == "receive" || verb == "exchange", "no model of the exchange ", verb);
  return message(cluster, bytes, members);
}

}  // namespace flatshard
