#pragma once
// Communicators over NCCL, for device memory, in CUDA stream order. Each rank needs its own GPU. All of them
// are split from one NCCL communicator of all ranks, which is initialized without blocking, within the time
// limit of a collective. A group of one rank uses no NCCL.
//
// Each communicator has its own connections and buffers, so that gathers and reductions run side by side:
// communicators that share them take turns. If all ranks of a communicator reach one another's memory, its
// collectives on registered memory run on the copy engines and occupy no multiprocessor.
//
// Calls may be captured in a graph (runtime/graph.h), if each has been made once before: the first connects
// to the other ranks. Graphs must be destroyed before their communicators. NCCL documents that what it does
// for graphs beside other calls can deadlock where a thread launches graphs of several communicators;
// NCCL_GRAPH_MIXING_SUPPORT=0 turns that off, but then no call may follow a launch that is under way.

#include <memory>

#include "comm/communicator.h"

namespace flatshard {

// A communicator over the ranks that pass the same color, as in make_communicator. All ranks must call it.
std::unique_ptr<Communicator> make_nccl_communicator(World& world, Device device, const char* name,
                                                     int color);

// The most channels of a communicator. Each occupies a multiprocessor while a kernel of NCCL runs; matrix
// products meanwhile use the others.
inline constexpr int kNcclChannels = 16;

}  // namespace flatshard
