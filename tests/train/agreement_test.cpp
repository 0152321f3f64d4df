#include "comm/agreement.h"

#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the first difference between ranks is named, whichever rank has it") {
  CHECK(first_difference({"a = 1\nb = 2\n", "a = 1\nb = 2\n"}) == "");
  CHECK(first_difference({"a = 1\nb = 2\n", "a = 1\nb = 2\n", "a = 1\nb = 3\n"}) ==
        "rank 2 has b = 3, rank 0 has 2");
  CHECK(first_difference({"a = 1\nb = 2\nc = 3\n", "a = 1\nb = 5\nc = 4\n"}) ==
        "rank 1 has b = 5, rank 0 has 2");
  CHECK(first_difference({"a = 1\nb = \"x = y\"\n", "a = 1\n"}) == "rank 1 has no b, rank 0 has \"x = y\"");
  CHECK(first_difference({"a = 1\n", "a = 1\nb = 2\n"}) == "rank 1 has b = 2, rank 0 has none");
}

TEST_CASE("a rank with another config ends all ranks with one line that names the difference") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("other_config");
  for (const auto& [common, odd, message] : {
           std::tuple{"", "--optimizer.lr=0.002",
                      "[rank 0] rank 2 has optimizer.lr = 0.002, rank 0 has 0.01: every rank must read the "
                      "same config"},
           {"", "--parallel.strategy=no_shard",
            "rank 2 has parallel.strategy = \"no_shard\", rank 0 has \"full_shard\""},
           {"", "--model.tied=true", "rank 2 has model.tied = true, rank 0 has none"},
           {"", "--train.total_batch_size=16 --train.batch_size_per_device=2",
            "rank 2 has train.total_batch_size = 16"},
           {"", "--plan", "rank 2 has task = plan, rank 0 has train"},
           {"", "--optimizer.lrr=1", "[rank 2] --optimizer.lrr: unknown key optimizer.lrr"},
           {"--train.total_batch_size=9", "--data.train=missing.tok",
            "rank 2 has data.train = \"missing.tok\""},
       }) {
    CAPTURE(odd);
    const std::string train = str("@train config.toml ", common);
    test::Job job("other_config", str("-np 2 ", train, " : -np 1 ", train, ' ', odd));
    const test::Finished run = job.wait();
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find(message) != std::string::npos);
    CHECK(count_of(run.output, "train: [rank") == 1);
  }
}
