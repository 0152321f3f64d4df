#include "train/step/unit_table.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "kernels/sum_squares.h"

namespace flatshard {
namespace {

// A name split around its first number.
struct Numbered {
  std::string before, after;
  int64_t number;
};

std::optional<Numbered> numbered(const std::string& name) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto begin = std::find_if(name.begin(), name.end(), digit);
  const auto end = std::find_if_not(begin, name.end(), digit);
  if (begin == end || end - begin > 9) return std::nullopt;
  return Numbered{{name.begin(), begin}, {end, name.end()}, std::stoll(std::string(begin, end))};
}

// A row under construction, which absorbs consecutive equal units.
struct Run {
  UnitRow one;
  std::optional<Numbered> first;
  int64_t units = 1;

  bool takes(const UnitRow& next, const std::optional<Numbered>& name) const {
    return first && name && name->before == first->before && name->after == first->after &&
           name->number == first->number + units && next.parameters == one.parameters &&
           next.shard == one.shard && next.traffic == one.traffic;
  }
  UnitRow row() const {
    UnitRow r = one;
    if (units == 1) return r;
    r.name = str(first->before, first->number, '-', first->number + units - 1, first->after);
    r.units = units;
    r.parameters *= units, r.shard *= units;
    r.traffic = r.traffic * units;
    return r;
  }
};

// The number of gathers of each unit in a step, if the unit is sharded and released after use: one for each
// visit of a layer that uses it, unless the visit before kept it gathered.
std::vector<int64_t> gathers_by_unit(const Wrapping& wrapping, const Schedule& schedule) {
  std::vector<int64_t> gathers(wrapping.units().size(), 0);
  const Visit* before = nullptr;
  for (const Visit& visit : schedule.visits) {
    for (const int unit : wrapping.units_of(visit.layer)) {
      const bool held = before && before->keep_for >= 0 && wrapping.uses(before->layer, unit) &&
                        wrapping.uses(before->keep_for, unit);
      gathers[static_cast<size_t>(unit)] += held ? 0 : 1;
    }
    before = &visit;
  }
  return gathers;
}

UnitRow row_of(const Wrapping& wrapping, size_t unit, int64_t gathers, const RunSetup& setup,
               const RankLevels& levels) {
  const ParamList& params = wrapping.units()[unit];
  const RankGroups& groups = setup.groups;
  const DType compute = setup.units.compute;
  const auto trainable = FlatLayout::trainable(params, groups.size, groups.count()),
             frozen = FlatLayout::frozen(params, compute, groups.size, groups.count());
  return {.name = wrapping.roles()[unit].name,
          .parameters = params.parameter_count(),
          .shard = trainable.shard_size() + frozen.shard_size() / size_of(compute),
          .traffic = traffic_of(trainable, frozen, wrapping.roles()[unit], gathers, setup.units, levels)};
}

// Every rank receives the sums of squares of all shards, one f32 per interval.
Bytes bytes_of_norm(const Wrapping& wrapping, RankGroups groups, const Levels& levels) {
  int64_t intervals = 0;
  for (const ParamList& params : wrapping.units())
    intervals += FlatLayout::trainable(params, groups.size, groups.count()).shard_size() / kSquaresInterval;
  return received_in_gather(intervals * groups.size * size_of(DType::f32), levels);
}

// A wrong pattern or size leaves parameters in the root units, which stay unsharded for most of a step.
std::string warning_of(const Wrapping& wrapping, const WrapOptions& wrap, int64_t all) {
  if (wrap.policy != WrapPolicy::pattern && wrap.policy != WrapPolicy::size) return "";
  int64_t in_root = 0;
  for (size_t unit = 0; unit < wrapping.units().size(); ++unit)
    if (wrapping.roles()[unit].root) in_root += wrapping.units()[unit].parameter_count();
  if (2 * in_root <= all) return "";
  return str("warning: parallel.wrap = \"", wrap.policy, "\" leaves ", 100 * in_root / all,
             "% of the parameters in root units, which stay unsharded for most of a step\n");
}

}  // namespace

UnitTable unit_table(const Wrapping& wrapping, const Schedule& schedule, const RunSetup& setup,
                     const RankLevels& levels) {
  UnitTable table{.rows = {},
                  .all = {.name = "all", .units = 0},
                  .norm = bytes_of_norm(wrapping, setup.groups, levels.group),
                  .micro_steps = setup.batching.micro_steps};
  const std::vector<int64_t> gathers = gathers_by_unit(wrapping, schedule);
  std::vector<Run> runs;
  for (size_t unit = 0; unit < wrapping.units().size(); ++unit) {
    const UnitRow row = row_of(wrapping, unit, gathers[unit], setup, levels);
    const std::optional<Numbered> name = numbered(row.name);
    // Units of different kinds may alternate, as attention and MLP do.
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Run& r) { return r.takes(row, name); });
    if (run != runs.end())
      ++run->units;
    else
      runs.push_back({row, name});
    ++table.all.units;
    table.all.parameters += row.parameters, table.all.shard += row.shard, table.all.traffic += row.traffic;
  }
  for (const Run& run : runs) table.rows.push_back(run.row());
  table.warning = warning_of(wrapping, setup.wrap, table.all.parameters);
  return table;
}

}  // namespace flatshard
