// The special registers: their names, and their values in a lane.

#include <algorithm>
#include <array>

#include "ptx_vm/grid.h"

namespace flatshard::ptx_vm {
namespace {

// In the order of Special.
constexpr std::array kSpecialNames{"%tid.x",
                                   "%tid.y",
                                   "%tid.z",
                                   "%ntid.x",
                                   "%ntid.y",
                                   "%ntid.z",
                                   "%ctaid.x",
                                   "%ctaid.y",
                                   "%ctaid.z",
                                   "%nctaid.x",
                                   "%nctaid.y",
                                   "%nctaid.z",
                                   "%laneid",
                                   "%warpid",
                                   "%nwarpid",
                                   "%lanemask_eq",
                                   "%lanemask_lt",
                                   "%lanemask_le",
                                   "%lanemask_gt",
                                   "%lanemask_ge",
                                   "%smid",
                                   "%nsmid",
                                   "%dynamic_smem_size",
                                   "%total_smem_size",
                                   "%cluster_ctaid.x",
                                   "%cluster_ctaid.y",
                                   "%cluster_ctaid.z",
                                   "%cluster_nctaid.x",
                                   "%cluster_nctaid.y",
                                   "%cluster_nctaid.z",
                                   "%cluster_ctarank",
                                   "%cluster_nctarank",
                                   "%clusterid.x",
                                   "%clusterid.y",
                                   "%clusterid.z",
                                   "%nclusterid.x",
                                   "%nclusterid.y",
                                   "%nclusterid.z",
                                   "%is_explicit_cluster"};

}  // namespace

std::optional<Special> special_named(std::string_view name) {
  const auto found = std::find(kSpecialNames.begin(), kSpecialNames.end(), name);
  if (found == kSpecialNames.end()) return {};
  return static_cast<Special>(found - kSpecialNames.begin());
}

uint32_t value_of(Special special, const Warp& warp, uint32_t lane) {
  const Block& block = *warp.block;
  const Launch& launch = *block.launch;
  const uint32_t thread = static_cast<uint32_t>(warp.index * kLanes) + lane;
  const uint32_t bit = 1u << lane;
  switch (special) {
    case Special::tid_x:
      return thread % launch.block.x;
    case Special::tid_y:
      return thread / launch.block.x % launch.block.y;
    case Special::tid_z:
      return thread / launch.block.x / launch.block.y;
    case Special::ntid_x:
      return launch.block.x;
    case Special::ntid_y:
      return launch.block.y;
    case Special::ntid_z:
      return launch.block.z;
    case Special::ctaid_x:
      return block.id.x;
    case Special::ctaid_y:
      return block.id.y;
    case Special::ctaid_z:
      return block.id.z;
    case Special::nctaid_x:
      return launch.grid.x;
    case Special::nctaid_y:
      return launch.grid.y;
    case Special::nctaid_z:
      return launch.grid.z;
    case Special::laneid:
      return lane;
    case Special::warpid:
      return static_cast<uint32_t>(warp.index);
    case Special::nwarpid:
      return static_cast<uint32_t>(block.warps.size());
    case Special::lanemask_eq:
      return bit;
    case Special::lanemask_lt:
      return bit - 1;
    case Special::lanemask_le:
      return bit | (bit - 1);
    case Special::lanemask_gt:
      return ~(bit | (bit - 1));
    case Special::lanemask_ge:
      return ~(bit - 1);
    case Special::smid:
      return 0;
    case Special::nsmid:
      return 1;
    case Special::dynamic_smem_size:
      return launch.dynamic_shared_bytes;
    case Special::total_smem_size:
      return static_cast<uint32_t>(block.shared.size());
    case Special::cluster_ctaid_x:
      return block.id.x % launch.cluster.x;
    case Special::cluster_ctaid_y:
      return block.id.y % launch.cluster.y;
    case Special::cluster_ctaid_z:
      return block.id.z % launch.cluster.z;
    case Special::cluster_nctaid_x:
      return launch.cluster.x;
    case Special::cluster_nctaid_y:
      return launch.cluster.y;
    case Special::cluster_nctaid_z:
      return launch.cluster.z;
    case Special::cluster_ctarank:
      return block.rank;
    case Special::cluster_nctarank:
      return static_cast<uint32_t>(launch.cluster.count());
    case Special::clusterid_x:
      return block.id.x / launch.cluster.x;
    case Special::clusterid_y:
      return block.id.y / launch.cluster.y;
    case Special::clusterid_z:
      return block.id.z / launch.cluster.z;
    case Special::nclusterid_x:
      return launch.grid.x / launch.cluster.x;
    case Special::nclusterid_y:
      return launch.grid.y / launch.cluster.y;
    case Special::nclusterid_z:
      return launch.grid.z / launch.cluster.z;
    case Special::is_explicit_cluster:
      return launch.has_clusters ? kAllLanes : 0;  // a predicate: all of its lanes
  }
  return 0;
}

bool varies_by_block(Special special) {
  switch (special) {
    case Special::ctaid_x:
    case Special::ctaid_y:
    case Special::ctaid_z:
    case Special::clusterid_x:
    case Special::clusterid_y:
    case Special::clusterid_z:
      return true;
    default:
      return false;
  }
}

}  // namespace flatshard::ptx_vm
