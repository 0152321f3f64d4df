// Runs the program rank_matrix under mpirun: the same training run, sharded, scheduled and split in every
// way.

#include <map>
#include <sstream>

#include "build_config.h"
#include "comm/optimizer_kinds.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int kLimitSeconds = 900;  // ends a run that hangs, also on a slow machine

test::Finished rank_matrix(int ranks, const std::string& options) {
  return test::run_command(test::launcher(ranks) + "@rank_matrix " + options, kLimitSeconds);
}

size_t optimizers_beside_the_default() { return optimizer_kinds().size() - 1; }

// Subject -> hash, for the subjects whose bits do not depend on the number of ranks.
std::map<std::string, std::string> hashes(const test::Finished& run) {
  std::map<std::string, std::string> found;
  std::istringstream lines(run.output);
  for (std::string line; std::getline(lines, line);)
    if (const size_t colon = line.find(": "); colon != std::string::npos &&
                                              line.substr(0, colon).find(',') == std::string::npos &&
                                              line.find(" settings") != std::string::npos)
      found[line.substr(0, colon)] = line.substr(colon + 2, 64);
  return found;
}

// "full_shard exact" -> loss
std::map<std::string, double> losses(int ranks) {
  const test::Finished run = rank_matrix(ranks, "--losses");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  std::map<std::string, double> found;
  std::istringstream lines(run.output);
  std::string word, strategy, reduction;
  for (double loss; lines >> word >> strategy >> reduction >> loss;) found[strategy + ' ' + reduction] = loss;
  CHECK(found.size() == 12);
  return found;
}

}  // namespace

// tests/comm/nightly tries all settings on any number of ranks, for 10 steps.
TEST_CASE("every strategy gives the same bits on 1, 2, 4 and 8 ranks in every stream order") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const size_t subjects = 29 + 2 * optimizers_beside_the_default();
  const std::map<std::string, std::string> alone = hashes(rank_matrix(1, "--sample --steps 2"));
  CHECK(alone.size() == subjects);
  for (const int ranks : {2, 4, 8}) {
    if (ranks == 8 && *kSanitizer != '\0') continue;  // would take minutes on a few cores
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--sample --steps 2");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    const std::map<std::string, std::string> found = hashes(run);
    CHECK(found.size() >= (ranks <= 4 ? subjects : subjects / 4));
    for (const auto& [subject, hash] : found) CHECK_MESSAGE(alone.at(subject) == hash, run.output);
  }
}

TEST_CASE("pipeline stages give the bits of one rank in every schedule and strategy") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const std::map<std::string, std::string> alone = hashes(rank_matrix(1, "--sample --steps 2"));
  // The subjects whose units lie within stages.
  const size_t subjects = 17 + 2 * optimizers_beside_the_default();
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--stages --steps 2");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    const std::map<std::string, std::string> found = hashes(run);
    CHECK(found.size() == subjects);
    for (const auto& [subject, hash] : found) CHECK_MESSAGE(alone.at(subject) == hash, run.output);
  }
}

// tests/comm/nightly draws more of them.
TEST_CASE("models that read images have the bits of one rank in stages of several lanes") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const std::map<std::string, std::string> alone = hashes(rank_matrix(1, "--images --steps 2"));
  CHECK(alone.size() == 8);
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--images --steps 2");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    CHECK_MESSAGE(hashes(run) == alone, run.output);
  }
}

// tests/comm/nightly draws more of them.
TEST_CASE("ranks that divide experts have the bits of one rank") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const std::map<std::string, std::string> alone = hashes(rank_matrix(1, "--experts --count 6 --steps 2"));
  CHECK(alone.size() == 6);
  for (const int ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--experts --count 6 --steps 2");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    CHECK_MESSAGE(hashes(run) == alone, run.output);
  }
}

// tests/comm/nightly tries every subject in every schedule, and does the same on four ranks.
TEST_CASE("runs in pipeline stages write the files of one stage, and resume each other's checkpoints") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Finished run = rank_matrix(2, "--written");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  CHECK_MESSAGE(
      run.output.find(str(18 + optimizers_beside_the_default(), " settings, 0 differ")) != std::string::npos,
      run.output);
}

TEST_CASE("3 and 5 ranks agree with one rank up to rounding, in every strategy and reduction") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  constexpr double kRounding = 1e-6;  // f32 sums in another order, over 8 steps
  const std::map<std::string, double> on_one = losses(1);
  const double alone = on_one.at("full_shard exact");
  for (const int ranks : {1, 3, 5}) {
    CAPTURE(ranks);
    for (const auto& [how, loss] : ranks == 1 ? on_one : losses(ranks)) {
      CAPTURE(how);
      CHECK(loss == doctest::Approx(alone).epsilon(kRounding));
    }
  }
}

TEST_CASE("collectives and messages deliver every element") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--collectives");
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    CHECK(run.output.find(str("collectives hold on ", ranks, " ranks")) != std::string::npos);
  }
}

TEST_CASE("rank 0 initializes all ranks if requested, otherwise each rank initializes its own shards") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--start");
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    CHECK(run.output.find("all ranks start from rank 0's values in 6 cases") != std::string::npos);
  }
}

TEST_CASE("nonfinite gradients on one rank make all ranks skip the step and halve the loss scale") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--nonfinite");
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    CHECK(run.output.find(str("all ranks skip together in ", 5 * ranks, " cases")) != std::string::npos);
  }
}

TEST_CASE("each rank receives the bytes that the unit table states, in every strategy") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    const test::Finished run = rank_matrix(ranks, "--traffic");
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    CHECK((run.output.find("hybrid offloaded: gathered 0 + 0, reduced 0 + 0,") != std::string::npos) ==
          (ranks == 1));
  }
}
