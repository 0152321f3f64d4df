// The JSON report. Times are in seconds, rates in bytes and operations per second.

#include "bench/report.h"
#include "runtime/json.h"

namespace flatshard::bench {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Machine& m) {
  return {{"device", m.device},     {"processor", m.processor},
          {"threads", m.threads},   {"cache_bytes", m.cache_bytes},
          {"compiler", m.compiler}, {"build_type", m.build_type},
          {"commit", m.commit}};
}

Json json_of(const Spread& s) { return {{"median", s.median}, {"p10", s.p10}, {"p90", s.p90}}; }

Json json_of(const Ceiling& c) { return {{"rate", c.first()}, {"how", c.how()}}; }

Json json_of(const Ceilings& c) {
  Json json{{"copy", json_of(c.copy)}};
  if (c.read) json["read"] = json_of(*c.read);
  if (c.f32) json["matrix_f32"] = json_of(*c.f32);
  if (c.bf16) json["matrix_bf16"] = json_of(*c.bf16);
  return json;
}

Json json_of(const Result& r) {
  Json json{{"op", r.op}, {"shape", r.shape}, {"dtype", str(r.dtype)}};
  if (!r.skipped.empty()) {
    json["skipped"] = r.skipped;
    return json;
  }
  json["passed"] = r.accuracy.passed();
  json["accuracy"] = {
      {"error", r.accuracy.error}, {"tolerance", r.accuracy.tolerance}, {"case", r.accuracy.worst}};
  if (!r.was_timed()) return json;
  json["seconds"] = json_of(r.seconds);
  json["bytes"] = r.bytes;
  json["flops"] = r.flops;
  json["bound"] = r.matrix_bound ? "matrix" : "copy";
  json["copy_rate"] = r.copy_rate;
  json["copy_share"] = r.byte_rate() / r.copy_rate;
  if (r.matrix_rate > 0) {
    json["matrix_rate"] = r.matrix_rate;
    json["matrix_share"] = r.flop_rate() / r.matrix_rate;
  }
  json["floor_seconds"] = r.floor_seconds();
  json["samples"] = r.samples;
  json["calls_per_sample"] = r.calls_per_sample;
  json["copies"] = r.copies;
  json["out_of_time"] = r.out_of_time;
  json["disturbed"] = r.disturbed;
  return json;
}

Json json_of(const StepOp& op) {
  return {{"op", op.name},         {"shape", op.shape}, {"dtype", str(op.dtype)}, {"calls", op.calls},
          {"seconds", op.seconds}, {"flops", op.flops}, {"bytes", op.bytes}};
}

Json json_of(const StepResult& r) {
  Json ops = Json::array();
  for (const StepOp& op : r.ops) ops.push_back(json_of(op));
  return {{"model", r.model},
          {"compute", r.compute},
          {"seq_len", r.seq_len},
          {"tokens", r.tokens},
          {"micro_steps", r.micro_steps},
          {"keys", r.keys},
          {"seconds", json_of(r.seconds)},
          {"update_seconds", r.update_seconds},
          {"steps", r.steps},
          {"disturbed", r.disturbed},
          {"tokens_per_second", r.tokens_per_second()},
          {"tokens_per_second_without_update", r.tokens_per_second_without_update()},
          {"operations_full", r.operations_full},
          {"operations_causal", r.operations},
          {"bytes", r.bytes},
          {"matrix_rate", r.matrix_rate},
          {"copy_rate", r.copy_rate},
          {"mfu_full", r.mfu_full()},
          {"mfu_causal", r.mfu_causal()},
          {"floor_seconds", r.floor_seconds()},
          {"memory_bytes", r.memory_bytes},
          {"loss", r.loss},
          {"ops", std::move(ops)}};
}

Json json_of(const StepSample& s) {
  return {{"seconds", s.seconds},
          {"processor_seconds", s.processor_seconds},
          {"quiet", s.quiet},
          {"loss", s.loss}};
}

Json json_of(const CommResult& r) {
  return {{"verb", r.verb},
          {"ranks", r.ranks},
          {"bytes", r.bytes},
          {"seconds", json_of(r.ours)},
          {"algorithm_rate", r.algorithm_rate()},
          {"bus_rate", r.bus_rate()},
          {"beside", r.mpi_call},
          {"beside_seconds", json_of(r.plain)},
          {"ratio", r.ratio},
          {"samples", r.samples}};
}

}  // namespace

std::string to_json(const Machine& machine, const Ceilings& ceilings, const std::vector<Result>& results) {
  Json cases = Json::array();
  for (const Result& result : results) cases.push_back(json_of(result));
  const Json json{{"machine", json_of(machine)}, {"ceilings", json_of(ceilings)}, {"cases", cases}};
  return json_text(json, 2) + "\n";
}

std::string json_line(const Machine& machine, const Ceilings& ceilings) {
  return json_text(Json{{"machine", json_of(machine)}, {"ceilings", json_of(ceilings)}});
}

std::string json_line(const Result& result) { return json_text(json_of(result)); }

std::string to_json(const Machine& machine, const Ceilings& ceilings,
                    const std::vector<StepResult>& results) {
  Json steps = Json::array();
  for (const StepResult& result : results) steps.push_back(json_of(result));
  const Json json{{"machine", json_of(machine)}, {"ceilings", json_of(ceilings)}, {"steps", steps}};
  return json_text(json, 2) + "\n";
}

std::string json_line(const StepResult& result) { return json_text(json_of(result)); }

std::string json_line(const LoraRound& round) {
  return json_text(Json{{"adapters", json_of(round.adapters)},
                        {"frozen", json_of(round.frozen)},
                        {"full", json_of(round.full)}});
}

std::string to_json(const Machine& machine, const std::vector<CommResult>& results) {
  Json collectives = Json::array();
  for (const CommResult& result : results) collectives.push_back(json_of(result));
  return json_text(Json{{"machine", json_of(machine)}, {"collectives", collectives}}, 2) + "\n";
}

}  // namespace flatshard::bench
