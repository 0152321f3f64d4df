// What carries tensors between ranks, chosen by where they lie.

#include "build_config.h"
#include "comm/communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/self_communicator.h"
#include "comm/staged_communicator.h"
#include "runtime/check.h"

namespace flatshard {

std::unique_ptr<Communicator> make_communicator(World& world, const char* name, int color,
                                                Transport transport, Device device) {
  if constexpr (kNcclBuilt)
    if (transport == Transport::nccl) return make_nccl_communicator(world, device, name, color);
  check(transport != Transport::nccl, "this build has no NCCL, and ", device, " asks for it");
  std::unique_ptr<Communicator> host = make_host_communicator(world, name, color);
  if (transport == Transport::host) return host;
  if (host->size() == 1) return std::make_unique<SelfCommunicator>(name);
  return std::make_unique<StagedCommunicator>(std::move(host));
}

}  // namespace flatshard
