// membar and fence: between threads, and between ordinary accesses and those of the async proxy

#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/mbarrier.h"

namespace flatshard::ptx_vm {
namespace {

// Memory is always consistent here; a fence only changes which accesses count as ordered.
void order_all(Warp& warp, const Op&) { fence(warp); }

void show_mbarriers(Warp& warp, const Op&) {
  for_each_lane(warp.active, [&](int lane) { fence_mbarriers(warp, lane, true); });
}

void order_proxies(Warp& warp, const Op&) {
  for_each_lane(warp.active, [&](int lane) { fence_mbarriers(warp, lane, false); });
  warp.proxy_fences.push_back({Epochs::next_mark(), warp.time(), warp.active});
  warp.epoch = 0;  // later stores get new marks
}

Handler proxy_handler(Decoder& d) {
  d.need_sm_90();
  if (d.take("async")) {
    d.take_any({"global", "shared::cta", "shared::cluster"});
    return order_proxies;
  }
  // A tensor map that a kernel writes would need this one; here only the host writes them.
  if (!d.take("tensormap::generic") && !d.take("alias"))
    d.wrong("only .async, .alias and .tensormap::generic are supported");
  d.take_any({"acquire", "release"});
  d.take_any({"cta", "cluster", "gpu", "sys"});
  return order_all;
}

void decode_fence(Decoder& d) {
  Op op;
  op.run = order_all;
  if (d.take("proxy")) {
    op.run = proxy_handler(d);
  } else if (d.take("mbarrier_init")) {
    d.need_sm_90();
    if (!d.take("release") || !d.take("cluster")) d.wrong("only .release.cluster exists");
    op.run = show_mbarriers;
  } else {
    d.take_any({"sc", "acq_rel"});
    if (d.take_any({"cta", "cluster", "gl", "gpu", "sys"}).empty()) d.wrong("a scope is missing");
  }
  d.emit(op);
}

}  // namespace

void add_fence_ops(OpTable& table) { table["membar"] = table["fence"] = decode_fence; }

}  // namespace flatshard::ptx_vm
