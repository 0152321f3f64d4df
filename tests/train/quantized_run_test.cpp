// Runs that train adapters on 4-bit weights, as users start them.

#include <cmath>
#include <filesystem>

#include "checkpoint/tensor_folder.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string kLora = " --lora.rank=3 --lora.dropout=0.2 --train.steps=4 --checkpoint.save_every=2 ";
const std::string kQuantized = " --model.init_from=base/model --quant.base=nf4 --quant.double=true" + kLora;

// Units have enough trained elements for 8-bit moments.
const std::string kCoded =
    " --model.hidden=32 --model.init_from=base/model --quant.base=nf4 --quant.double=true --lora.rank=16 "
    "--lora.save_modules='[\"lm_head\"]' --train.steps=4 --checkpoint.save_every=2 ";

test::Workshop with_base(const std::string& name, const std::string& options = "") {
  test::Workshop workshop(name);
  const test::Finished base = workshop.train(1, "--train.steps=2 --run.dir=base" + options);
  REQUIRE_MESSAGE(base.exit_code == 0, base.output);
  return workshop;
}

test::Finished ckpt(const test::Workshop& workshop, const std::string& words) {
  const test::Finished run = test::run_command("cd " + workshop.file("") + " && @ckpt " + words);
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  return run;
}

}  // namespace

TEST_CASE("a run on 4-bit weights has the same bits on any ranks and from a quantized folder") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop = with_base("quantized_run");
  const test::Finished whole = workshop.train(1, kQuantized + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const std::string loading =
        ranks == 2 ? " --parallel.cpu_ram_efficient_loading=true" : " --parallel.offload=true";
    const test::Finished sharded = workshop.train(ranks, kQuantized + str("--run.dir=on", ranks) + loading);
    CHECK_MESSAGE(hash_of(sharded) == hash_of(whole), sharded.output);
    const test::Finished resumed =
        workshop.train(ranks, kQuantized + str("--resume whole/step-2 --run.dir=resumed", ranks));
    CHECK_MESSAGE(hash_of(resumed) == hash_of(whole), resumed.output);
  }
  // The folder that ckpt writes has the same codes.
  ckpt(workshop, "quantize base/model --double --out four_bit");
  const test::Finished folder = workshop.train(2, " --model.init_from=four_bit" + kLora + "--run.dir=folder");
  CHECK_MESSAGE(hash_of(folder) == hash_of(whole), folder.output);
}

TEST_CASE("adapters on 4-bit weights have the same bits with 8-bit moments on any ranks, and resume") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop = with_base("quantized_coded", " --model.hidden=32");
  const std::string options = kCoded + "--optimizer.kind=";
  const test::Finished whole = workshop.train(1, options + "adamw8bit --run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const test::Finished offloaded =
      workshop.train(2, options + "adamw8bit --run.dir=two --parallel.offload=true");
  CHECK_MESSAGE(hash_of(offloaded) == hash_of(whole), offloaded.output);
  const test::Finished resumed =
      workshop.train(4, options +
                            "paged_adamw8bit --run.dir=four --resume two/step-2 --parallel.strategy=hybrid "
                            "--parallel.group_size=2");
  CHECK_MESSAGE(hash_of(resumed) == hash_of(whole), resumed.output);
  CHECK(test::checkpoint_content(workshop.file("four/step-4")) ==
        test::checkpoint_content(workshop.file("whole/step-4")));
  int coded = 0;
  const TensorFolder moments(workshop.file("whole/step-4"), "exp_avg");
  for (const auto& [name, entry] : moments.entries()) coded += entry->dtype == "U8";
  CHECK(coded == 2 * 2 * 7);  // a and b of seven layers in two blocks
}

TEST_CASE("three ranks agree with one and four up to rounding on 4-bit weights with 8-bit moments") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop = with_base("quantized_three", " --model.hidden=32");
  const auto last_loss = [&](int ranks, const std::string& folder, const std::string& options = "") {
    const test::Finished run = workshop.train(
        ranks, kCoded + "--optimizer.kind=adamw8bit --precision.compute=fp32 --train.total_batch_size=12 " +
                   "--log.every=1 --run.dir=" + folder + options);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    const std::string lines = test::read_file(workshop.file(folder) + "/metrics.jsonl");
    return std::stod(test::after(lines, "\"loss\":"));
  };
  constexpr double kRounding = 1e-6;  // of sums over ranks, after four steps
  const double loss = last_loss(4, "four");
  CHECK(last_loss(1, "one") == doctest::Approx(loss).epsilon(kRounding));
  CHECK(last_loss(3, "three") == doctest::Approx(loss).epsilon(kRounding));
  CHECK(last_loss(3, "resumed", " --resume four/step-2") == doctest::Approx(loss).epsilon(kRounding));
}

TEST_CASE("generate and evaluate take the adapter of a run on its base in 4 bits, or as its folder has it") {
  const test::Workshop workshop = with_base("quantized_programs");
  REQUIRE(workshop.train(1, kQuantized + "--optimizer.lr=0.1 --run.dir=run").exit_code == 0);
  ckpt(workshop, "quantize base/model --double --out four_bit");
  ckpt(workshop, "export four_bit plain --dtype f32");
  ckpt(workshop, "merge-adapter four_bit run/adapter --dtype f32 --out merged --other-base");
  const auto output = [&](const std::string& command) {
    const test::Finished run = test::run_command("cd " + workshop.file("") + " && " + command);
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    return run.output;
  };
  const std::string text = " --device cpu --temperature 0 --max-new-tokens 12 --prompt '1 2 3' 2>/dev/null";
  const auto generated = [&](const std::string& model) { return output("@generate " + model + text); };
  const auto loss = [&](const std::string& model) {
    return std::stod(
        output("@evaluate loss " + model + " corpus.tok --device cpu --seq-len 16 2>/dev/null").substr(5));
  };
  const std::string adapted = "four_bit --other-base --adapter run", stored = " --base-as-stored";
  CHECK(loss("four_bit") == doctest::Approx(loss("plain")).epsilon(1e-4));
  CHECK(loss(adapted) == doctest::Approx(loss("merged")).epsilon(1e-4));
  CHECK(std::abs(loss(adapted) - loss("four_bit")) > 1e-2);
  // The base of the run is rounded as in training, to the codes that ckpt writes, unless it is to be left
  // alone.
  CHECK(loss("run") == doctest::Approx(loss(adapted)).epsilon(1e-4));  // its config.json names bf16 products
  CHECK(loss("run") == loss("base/model --adapter run"));
  CHECK(loss("run") != loss("run" + stored));
  CHECK(loss("run" + stored) == loss("base/model --adapter run/adapter" + stored));
  CHECK(generated("run") == generated(adapted));
  CHECK(generated(adapted) != generated("four_bit"));
  if (!test::no_ranks_because().empty()) return;
  CHECK(output(test::launcher(2) + " @generate " + adapted + text) == generated(adapted));
}

TEST_CASE("requantizing says what it costs, and is refused where it loses most of what the adapter adds") {
  const test::Workshop workshop = with_base("quantized_again");
  ckpt(workshop, "quantize base/model --out four_bit");
  const std::string on = " --model.init_from=four_bit --lora.rank=3 --train.steps=4 --run.dir=";
  REQUIRE(workshop.train(1, on + "little --optimizer.lr=1e-5").exit_code == 0);
  REQUIRE(workshop.train(1, on + "much --optimizer.lr=1").exit_code == 0);
  const std::string merge = "merge-adapter little --requantize --out ";
  const test::Finished refused =
      test::run_command("cd " + workshop.file("") + " && @ckpt " + merge + "refused");
  CHECK(refused.exit_code == 2);
  CHECK_MESSAGE(has(refused.output, "of what the adapter adds"), refused.output);
  CHECK_MESSAGE(has(refused.output, "most of the training is lost"), refused.output);
  CHECK(!std::filesystem::exists(workshop.file("refused")));
  CHECK(has(ckpt(workshop, merge + "forced --force").output, "warning: --requantize rounds "));
  const std::string little = ckpt(workshop, "merge-adapter much --requantize --out written").output;
  CHECK_MESSAGE(has(little, "compare the loss before and after"), little);
}

TEST_CASE("contradictions of 4-bit settings are refused with the remedy") {
  const test::Workshop workshop = with_base("quantized_refused");
  ckpt(workshop, "quantize base/model --out four_bit");
  REQUIRE(workshop.train(1, kQuantized + "--run.dir=first").exit_code == 0);
  const auto refused = [&](const std::string& options, const std::string& message) {
    const test::Finished run = workshop.train(1, options + " --run.dir=refused");
    CAPTURE(options);
    CHECK(run.exit_code != 0);
    CHECK_MESSAGE(has(run.output, message), run.output);
  };
  const std::string published = " --model.init_from=four_bit ";
  refused(published, "four_bit has 4-bit weights, but lora.rank = 0");
  refused(published + kLora + "--quant.base=nf4", "four_bit already has 4-bit weights: remove it");
  refused(published + kLora + "'--lora.save_modules=[\"down_proj\"]'", "is quantized in four_bit");
  refused(published + kLora + "--model.adapter=first/adapter", "merge it first, with ckpt merge-adapter");
}
