#pragma once
// Agreement between ranks. Ranks that read different inputs or run different programs would wait for each
// other forever, or train on wrong inputs unnoticed. So ranks compare their inputs and plans before they
// begin; if two of them differ, every rank stops with an Error that names the first difference.

#include <functional>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/world.h"

namespace flatshard {

// Throws on every rank unless all ranks pass the same text, made of lines "key = value". The Error names the
// first difference with the ranks and their hosts, all ranks that differ, then `advice`. `what` is a literal
// that names the text. `like`: each rank compares with this one instead of rank 0.
void agree(World& world, const std::string& text, const char* what, const char* advice, int like = 0);
// The same for the collectives of a step, which are the same on all ranks of a pipeline stage; `like` is the
// first of these. Equal configs give equal schedules; different programs may not.
void agree_on_schedule(World& world, const CollectiveLog& schedule, int like = 0);

// Runs `work` on every rank. If it throws on any of them, every rank throws the Error of the lowest such
// rank.
void succeed_together(World& world, const std::function<void()>& work);

// The first difference of a rank's text, of lines "key = value", from that of rank `like`: "rank 2 has KEY =
// V, rank 0 has W", or "" if they are equal. With the host of each rank: "rank 2 on node7 has ...".
std::string difference(size_t rank, size_t like, const std::vector<std::string>& texts,
                       const std::vector<std::string>& hosts = {});

}  // namespace flatshard
