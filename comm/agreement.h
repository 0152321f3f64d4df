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
// that names the text. Each rank compares with rank `like`.
void agree(World& world, const std::string& text, const char* what, const char* advice, int like = 0);
// Throws unless all ranks have the same collectives in a step. Only the ranks of a pipeline stage do, and
// `like` is the first of them. Equal configs give equal schedules, but different programs may not.
void agree_on_schedule(World& world, const CollectiveLog& schedule, int like = 0);

// Runs `work` on every rank. If it throws on any of them, every rank throws the Error of the lowest such
// rank.
void succeed_together(World& world, const std::function<void()>& work);

// The first difference between the texts of `rank` and rank `like`, made of lines "key = value": "rank 2 has
// KEY = V, rank 0 has W", or "" if they are equal. With hosts: "rank 2 on node7 has ...".
std::string difference(size_t rank, size_t like, const std::vector<std::string>& texts,
                       const std::vector<std::string>& hosts = {});

}  // namespace flatshard
