// barrier.cluster mapa getctarank griddepcontrol

#include "ptx_vm/ops_cluster.h"

#include "ptx_vm/cluster.h"
#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/memory.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kU32{Type::Kind::unsigned_int, 4};

void arrive(Warp& warp, const Op& op) { warp.block->cluster->arrive(warp, op.releases); }
void wait(Warp& warp, const Op&) { warp.block->cluster->wait(warp); }

template <class Address>
void map_address(Warp& warp, const Op& op) {
  const Address* address = warp.lanes<Address>(op.slot[1]);
  const uint32_t* rank = warp.lanes<uint32_t>(op.slot[2]);
  write_lanes<Address>(warp, op.slot[0],
                       [&](int l) { return static_cast<Address>(address_in(rank[l], address[l])); });
}

template <class Address>
void rank_of(Warp& warp, const Op& op) {
  const Address* address = warp.lanes<Address>(op.slot[1]);
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) {
    const auto rank = static_cast<uint32_t>((address[l] & kRankMask) >> kRankShift);
    return rank ? rank - 1 : warp.block->rank;
  });
}

// With a state space the addresses are those of shared memory, else generic ones.
Type take_address_type(Decoder& d) {
  d.need_sm_90();
  const bool is_shared = d.take("shared::cluster");
  const Type type = d.take_type();
  if (type.kind != Type::Kind::unsigned_int || type.bytes < 4) d.wrong("does not exist for this type");
  if (!is_shared && type.bytes != 8) d.wrong("generic addresses have 64 bits");
  return type;
}

void mapa(Decoder& d) {
  const Type type = take_address_type(d);
  Op op;
  op.run = type.bytes == 4 ? map_address<uint32_t> : map_address<uint64_t>;
  op.slot = {d.result(0, type), d.read(1, type), d.read(2, kU32)};
  d.emit(op);
}

void getctarank(Decoder& d) {
  const Type type = take_address_type(d);
  Op op;
  op.run = type.bytes == 4 ? rank_of<uint32_t> : rank_of<uint64_t>;
  op.slot = {d.result(0, kU32), d.read(1, type)};
  d.emit(op);
}

// Launches of a stream run one after the other, so there is nothing to wait for.
void griddepcontrol(Decoder& d) {
  d.need_sm_90();
  if (d.take_any({"wait", "launch_dependents"}).empty()) d.wrong("must be .wait or .launch_dependents");
}

}  // namespace

void decode_cluster_barrier(Decoder& d) {
  d.need_sm_90();
  Op op;
  op.flow = Flow::barrier;
  d.take("aligned");
  if (d.take("arrive")) {
    op.run = arrive;
    op.releases = !d.take("relaxed");
    d.take("release");
  } else {
    if (!d.take("wait")) d.wrong("must be .arrive or .wait");
    op.run = wait;
    op.acquires = true;
    d.take("acquire");
  }
  d.emit(op);
}

void add_cluster_ops(OpTable& table) {
  table["mapa"] = mapa;
  table["getctarank"] = getctarank;
  table["griddepcontrol"] = griddepcontrol;
}

}  // namespace flatshard::ptx_vm
