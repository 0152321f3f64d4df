#pragma once
// Agreement between ranks. Ranks that read different inputs or run different programs would wait for each
// other forever, or train on the wrong thing in silence. So they compare what they are about to do, and where
// two of them differ, every rank stops with an Error that names the first difference.

#include <functional>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/world.h"

namespace flatshard {

// Throws on every rank unless all ranks pass the same text, made of lines "key = value". The Error names the
// first difference with the ranks and their hosts, then `advice`. `what` is a literal that names the text.
void agree(World& world, const std::string& text, const char* what, const char* advice);
// The same for the collectives of a step. Equal configs give equal schedules; different programs may not.
void agree_on_schedule(World& world, const CollectiveLog& schedule);

// Runs `work` on every rank. If it throws on any of them, every rank throws the Error of the lowest such
// rank.
void succeed_together(World& world, const std::function<void()>& work);

// For one text per rank, of lines "key = value": "rank 2 has KEY = V, rank 0 has W", or "" if all are equal.
// With the host of each rank: "rank 2 on node7 has ...".
std::string first_difference(const std::vector<std::string>& texts,
                             const std::vector<std::string>& hosts = {});

}  // namespace flatshard
