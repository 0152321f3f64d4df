#include "planner/machines/cluster.h"

#include "runtime/check.h"

namespace flatshard {
namespace {

// Sources. Ring steps: the latencies of the protocol Simple in NCCL's cost model, src/graph/tuning.cc
// (hwLatencies: NVLink 3.4 us, PCI 5.7 us, network 14 us). Efficiency of a ring on NVLink and on network
// cards: the ratios 0.81 and 0.96 with which that model meets the bus bandwidths that SimAI publishes for 8
// to 1024 GPUs (aliyun/SimAI, calbusbw.cc and its tables of ring efficiency). PCIe: 0.8, assumed. A network
// card of 400 Gbit/s carries 48.5 GB/s (calbusbw.cc).
constexpr double kRingStepNvlinkUs = 3.4, kRingStepPcieUs = 5.7, kRingStepNetworkUs = 14;
constexpr double kNvlinkEfficiency = 0.81, kPcieEfficiency = 0.8, kNicEfficiency = 0.96, kNicGbps = 48.5;
// Copies from pinned memory reach 55 of the 64 GB/s of PCIe 5.0 x16 (bench/results, H200), and the same share
// of PCIe 4.0; HGX boards connect two GPUs to a switch.
constexpr double kShareOfBus = 55.0 / 64;
constexpr int64_t kGpusOfSwitch = 2;
// Assumed: AdamW on the host at 50 GB/s for a rank (16 threads beside one H200 reach 82); a kernel launch
// takes the host 4 us (NVIDIA's guidance is 2 to 5 us); ranks differ by 0.5 % for a run and by 0.5 % in each
// step.
constexpr double kUpdateGbps = 50, kIssueUs = 4, kJitter = 0.005;

}  // namespace

void Cluster::set_nvlink(bool has_nvlink) {
  nvlink = has_nvlink;
  link_efficiency = nvlink ? kNvlinkEfficiency : kPcieEfficiency;
  link_step_us = nvlink ? kRingStepNvlinkUs : kRingStepPcieUs;
}

double Cluster::oversubscription(double nodes) const {
  double most = 1;
  for (const NetworkTier& tier : tiers) {
    most = tier.oversubscription;
    if (nodes <= static_cast<double>(tier.nodes)) break;
  }
  return most;
}

const GpuModel& gpu_model(const std::string& name) {
  const GpuModel* const model = gpu_model_named(name);
  check(model, "--for ", name, ": no such machine, must be one of ", gpu_model_names(),
        ", cpu, or the path of a cluster file, which ends in .toml");
  return *model;
}

Cluster usual_cluster(const GpuModel& gpu) {
  Cluster c{.source = gpu.name, .gpu = gpu};
  c.set_nvlink(gpu.link_gbps > gpu.host_gbps);
  c.link_gbps = gpu.link_gbps;
  c.host_gbps = gpu.host_gbps * kShareOfBus;
  c.gpus_per_switch = kGpusOfSwitch;
  c.update_gbps = kUpdateGbps;
  c.issue_us = kIssueUs;
  // Hosts with NVLink have a card for each GPU, of 400 Gbit/s in Hopper's generation and of 200 Gbit/s in
  // Ampere's (DGX A100). Hosts of PCIe cards have one card.
  c.nics_per_node = c.nvlink ? 8 : 1;
  c.nic_gbps = gpu.link_gbps >= 450 ? kNicGbps : kNicGbps / 2;
  c.nic_efficiency = kNicEfficiency;
  c.network_step_us = kRingStepNetworkUs;
  c.jitter_fixed = c.jitter_step = kJitter;
  return c;
}

double matrix_rate(const Cluster& c, DType compute, bool tf32) {
  return c.cpu ? c.cpu->products : published_matrix_rate(c.gpu, compute, tf32);
}

}  // namespace flatshard
