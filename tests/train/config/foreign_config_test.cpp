#include "train/config/foreign_config.h"

#include <algorithm>
#include <fstream>

#include "tests/test.h"
#include "train/config/config.h"
#include "train/config/foreign_import.h"

using namespace flatshard;

namespace {

// The settings that axolotl, torchtune and TRL publish with their examples, typed anew.
constexpr char kAxolotl[] = R"(base_model: models/llama
load_in_4bit: true
datasets:
  - path: data/chats.jsonl
    type: chat_template
  - path: data/more.jsonl
val_set_size: 0
output_dir: ./outputs/qlora-out
adapter: qlora
lora_model_dir:
sequence_len: 2048
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
wandb_project:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
warmup_ratio: 0.1
saves_per_epoch: 2
weight_decay: 0.0
special_tokens:
  pad_token: "<|end_of_text|>"
)";
constexpr char kTorchtune[] = R"(output_dir: runs/tune
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: models/llama/original/tokenizer.model
  max_seq_len: 512
model:
  _component_: torchtune.models.llama3_2.lora_llama3_2_1b
  lora_attn_modules: ['q_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 64
  lora_alpha: 128
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: models/llama
  output_dir: ${output_dir}
dataset:
  _component_: torchtune.datasets.chat_dataset
  packed: False
  data_files: data/chats.jsonl
batch_size: 4
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  weight_decay: 0.01
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 100
epochs: 1
max_steps_per_epoch: null
gradient_accumulation_steps: 8
clip_grad_norm: null
dtype: bf16
enable_activation_checkpointing: False
)";
constexpr char kTrl[] = R"({"output_dir": "out", "learning_rate": 2e-05, "per_device_train_batch_size": 4,
 "gradient_accumulation_steps": 2, "max_steps": -1, "num_train_epochs": 2, "lr_scheduler_type": "cosine",
 "warmup_ratio": 0.03, "bf16": false, "max_length": 512, "packing": false, "save_strategy": "epoch",
 "eval_strategy": "steps", "eval_steps": 50, "optim": "adamw_torch_fused", "adam_beta2": 0.95,
 "max_grad_norm": 0.3, "report_to": "none", "seed": 3, "assistant_only_loss": true}
)";

// The arguments of the guide of PEFT to QLoRA with FSDP.
constexpr char kPeft[] = R"(model_name_or_path: models/llama
dataset_name: data/chats.jsonl
chat_template_format: chatml
add_special_tokens: false
append_concat_token: false
splits: train,test
torch_dtype: bfloat16
bnb_4bit_quant_storage_dtype: bfloat16
max_seq_length: 2048
num_train_epochs: 1
logging_strategy: steps
evaluation_strategy: epoch
push_to_hub: true
hub_private_repo: true
bf16: true
learning_rate: 1e-4
lr_scheduler_type: cosine
weight_decay: 1e-4
warmup_ratio: 0.0
max_grad_norm: 1.0
output_dir: runs/peft
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
gradient_checkpointing: true
use_reentrant: true
dataset_text_field: content
use_flash_attn: true
use_peft_lora: true
lora_r: 8
lora_alpha: 16
lora_dropout: 0.1
lora_target_modules: q_proj,v_proj
use_4bit_quantization: true
use_nested_quant: true
bnb_4bit_compute_dtype: float16
bnb_4bit_quant_type: fp4
use_8bit_quantization: false
)";

struct Converted {
  std::string text;
  Config config;
};

// Converts a file, and reads the result as train does.
Converted convert(const std::string& name, const std::string& content, int ranks = 1) {
  std::ofstream(name) << content;
  const std::string text = converted_config(name, ranks), file = name + ".toml";
  std::ofstream(file) << text;
  return {text, load_config(file, {}).config};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a file of axolotl converts, and every key is mapped or explained") {
  const auto [text, c] = convert("axolotl.yml", kAxolotl, 2);
  CHECK(c.init_from == "models/llama");
  CHECK(std::get<std::vector<std::string>>(c.data.train) ==
        std::vector<std::string>{"data/chats.jsonl", "data/more.jsonl"});
  CHECK(c.data.packing == Packing::best_fit);
  CHECK(c.data.seq_len == 2048);
  CHECK(c.lora.rank == 32);
  CHECK(c.lora.alpha == 16);
  CHECK(name_of(c.optimizer.kind) == "paged_adamw8bit");
  CHECK(c.optimizer.betas == std::array{0.9, 0.999});
  CHECK(c.schedule.kind == ScheduleKind::cosine);
  CHECK(c.train.total_batch_size == 16);
  CHECK(c.train.batch_size_per_device == 2);
  CHECK(c.train.epochs == 4);
  CHECK(c.checkpoint.save_every == "0.125");
  CHECK(c.quant.base.has_value());
  CHECK(c.precision.compute == Precision::bf16);
  for (const char* key : {"load_in_4bit", "val_set_size", "lora_model_dir", "wandb_project",
                          "flash_attention", "special_tokens.pad_token", "datasets.type", "tf32"})
    CHECK_MESSAGE(has(text, str(": ", key)), key);
}

TEST_CASE("a recipe of torchtune converts, with references to its own values") {
  const auto [text, c] = convert("tune.yaml", kTorchtune);
  CHECK(c.run.dir == "runs/tune");
  CHECK(c.init_from == "models/llama");
  CHECK(std::get<std::string>(c.data.train) == "data/chats.jsonl");
  CHECK(c.data.packing == Packing::none);
  CHECK(c.data.seq_len == 512);
  CHECK(c.lora.rank == 64);
  CHECK(std::get<std::vector<std::string>>(c.lora.targets) ==
        std::vector<std::string>{"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  CHECK(c.optimizer.lr == 3e-4);
  CHECK(c.optimizer.weight_decay == 0.01);
  CHECK(c.optimizer.grad_clip == 0);
  CHECK(c.optimizer.no_decay.empty());
  CHECK(c.schedule.warmup_steps == 100);
  CHECK(c.schedule.kind == ScheduleKind::cosine);
  CHECK(c.train.total_batch_size == 32);
  CHECK(c.train.recompute == Recompute::none);
  CHECK(has(text, "clip_grad_norm  ->  is empty"));
}

TEST_CASE("keyword arguments of TRL's SFTConfig convert as JSON, with TRL's defaults") {
  const auto [text, c] = convert("sft.json", kTrl);
  CHECK(c.optimizer.betas == std::array{0.9, 0.95});
  CHECK(c.optimizer.grad_clip == 0.3);
  CHECK(c.train.epochs == 2);
  CHECK(c.train.total_batch_size == 8);
  CHECK(c.train.recompute == Recompute::full);
  CHECK(c.train.eval_every == 0);
  CHECK(c.checkpoint.save_each_epoch);
  CHECK(c.precision.compute == Precision::fp32);
  CHECK(c.data.train_on == TrainOn::assistant);
  CHECK(c.data.packing == Packing::none);
  CHECK(c.run.seed == 3);
  CHECK(has(text, "train.eval_every is left out: there is no data.eval"));
  CHECK(has(text, "max_steps = -1  ->  no limit on steps"));
  const auto [ignored, empty] = convert("sft_empty.json", "{\"output_dir\": \"out\"}");
  CHECK(empty.train.epochs == 3);
  CHECK(empty.train.batch_size_per_device == 8);
  CHECK(empty.data.seq_len == 1024);
  CHECK(empty.data.train_on == TrainOn::all);
}

TEST_CASE("arguments of the guide of PEFT convert, with their 4-bit weights and their chat template") {
  const auto [text, c] = convert("peft.yaml", kPeft);
  CHECK(c.quant.base == FourBitKind::fp4);
  CHECK(c.quant.nested);
  CHECK(c.quant.compute == Precision::fp16);
  CHECK(c.precision.compute == Precision::bf16);
  CHECK(c.data.chat_template == "chatml");
  CHECK(c.lora.rank == 8);
  CHECK(std::get<std::vector<std::string>>(c.lora.targets) == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(c.train.total_batch_size == 4);
  for (const char* key :
       {"splits", "bnb_4bit_quant_storage_dtype", "hub_private_repo", "use_8bit_quantization"})
    CHECK_MESSAGE(has(text, str(": ", key)), key);
}

TEST_CASE("adapters and 4-bit weights are those that a switch asks for") {
  const auto config = [](const std::string& content) { return convert("switches.yml", content).config; };
  const std::string axolotl = "base_model: m\nlora_r: 8\n";
  CHECK(config(axolotl).lora.rank == 0);
  CHECK(config(axolotl + "adapter: lora\nbnb_4bit_quant_type: nf4\n").lora.rank == 8);
  CHECK_FALSE(config(axolotl + "adapter: lora\nbnb_4bit_quant_type: nf4\n").quant.base.has_value());
  const Config qlora = config(axolotl + "adapter: qlora\n");
  CHECK(qlora.quant.base == FourBitKind::nf4);
  CHECK(qlora.quant.nested);
  CHECK(config("lora_r: 8\nuse_peft: false\n").lora.rank == 0);
  const Config trl = config("lora_r: 8\nuse_peft: true\nload_in_4bit: true\ndtype: float32\nbf16: true\n");
  CHECK(trl.quant.base == FourBitKind::nf4);
  CHECK_FALSE(trl.quant.nested);
  CHECK(trl.precision.compute == Precision::bf16);
  CHECK(
      config("model:\n  _component_: torchtune.models.llama3.qlora_llama3_8b\n  lora_rank: 8\n").quant.base ==
      FourBitKind::nf4);
  const Config continued = config(axolotl + "adapter: lora\nlora_model_dir: a\n");
  CHECK(continued.adapter == "a");
  CHECK(continued.lora.rank == 0);
}

TEST_CASE("every value that the table lists is converted as it says") {
  Config config;
  const std::vector<Field> known = fields(config);
  int count = 0;
  for (const ForeignKey& row : foreign_keys()) {
    const std::string key = split(row.spellings, ' ').front();
    // Options of packing depend on its switch, and the other is a key of accelerate.
    if (row.rule == ForeignRule::packing || key == "distributed_type") continue;
    for (const ForeignValue& value : row.values) {
      const Field* const field = field_named(known, *value.key ? value.key : row.key);
      if (!field || !value.ours || *value.ours == 0) continue;
      std::string theirs = split(value.theirs, ' ').front();
      std::replace(theirs.begin(), theirs.end(), '*', 'x');
      std::ofstream("listed.yml") << key << ": " << theirs << '\n';
      std::string text;
      const std::string error = test::error_of([&] { text = converted_config("listed.yml", 1); });
      CHECK_MESSAGE(has(text, str(": ", key, " = ", theirs, "  ->  ", field->key)), key, theirs, error);
      ++count;
    }
  }
  CHECK(count > 75);
}

TEST_CASE("an option of packing counts in either order where sequences are packed") {
  const auto error = [](const std::string& lines) {
    std::ofstream("packed.yml") << lines;
    return test::error_of([] { converted_config("packed.yml", 1); });
  };
  CHECK(convert("packed.yml", "packing: true\npacking_strategy: bfd\n").config.data.packing ==
        Packing::best_fit);
  CHECK(convert("packed.yml", "packing_strategy: wrapped\n").config.data.packing == Packing::none);
  CHECK(has(error("packing: true\npacking_strategy: wrapped\n"), "packed.yml:2: packing_strategy = wrapped"));
  CHECK(has(error("packing_strategy: wrapped\npacking: true\n"), "packed.yml:2: packing = true"));
}

TEST_CASE("a method of LLaMA-Factory asks for adapters or for none, and 4 bits for 4-bit weights") {
  const auto config = [](const std::string& lines) { return convert("factory.yml", lines).config; };
  CHECK(config("lora_rank: 8\nfinetuning_type: lora\n").lora.rank == 8);
  CHECK(config("lora_rank: 8\nfinetuning_type: full\n").lora.rank == 0);
  CHECK(config("lora_rank: 8\nfinetuning_type: lora\nquantization_bit: 4\n").quant.base == FourBitKind::nf4);
  const std::string targets = "lora_rank: 8\nfinetuning_type: lora\nlora_target: ";
  CHECK(std::get<std::string>(config(targets + "all\n").lora.targets) == "all-linear");
  CHECK(std::get<std::vector<std::string>>(config(targets + "q_proj,v_proj\n").lora.targets).size() == 2);
}

TEST_CASE("a key that changes what is trained is never dropped") {
  const auto error = [](const std::string& lines) {
    std::ofstream("dropped.yml") << "base_model: m\nadapter: lora\nlora_r: 8\n" << lines << '\n';
    return test::error_of([] { converted_config("dropped.yml", 1); });
  };
  // The key, its value, and a word of the reason.
  const std::vector<std::array<std::string, 3>> refused{
      {"an_unheard_of_key", "3", "not known"},
      {"neftune_noise_alpha", "5", "without noise"},
      {"lora_use_dora", "true", "not known"},
      {"peft_use_dora", "true", "DoRA"},
      {"load_in_8bit", "true", "8-bit"},
      {"val_set_size", "0.05", "data.eval"},
      {"optimizer", "adafactor", "optimizer.kind"},
      {"optimizer", "galore_adamw", "optimizer.kind"},
      {"lr_scheduler", "cosine_with_restarts", "schedule.kind"},
      {"learning_rate", "fast", "optimizer.lr"},
      {"adam_beta1", "fast", "number"},
      {"beta2", "1.5", "from 0 to 1"},
      {"max_steps", "many", "whole number"},
      {"finetuning_type", "freeze", "model.trainable"},
      {"quantization_bit", "8", "for 4"},
      {"added_tokens", "a.json", "tokenizer.json"},
      {"rl", "ppo", "train.loss"},
      {"tensor_parallel_size", "2", "tensor"},
      {"split_batches", "true", "per device"},
      {"group_by_length", "true", "random"},
      {"adapter_dropout", "0.5", "not known"},
      {"num_processes", "8", "--ranks 8"},
  };
  for (const auto& [key, value, reason] : refused) {
    const std::string found = error(key + ": " + value);
    CHECK_MESSAGE(test::missing_from(found, {"dropped.yml:4: ", key, value, reason, "remove it"}) == "",
                  found);
  }
  CHECK(test::missing_from(
            error("datasets:\n  - path: a.jsonl\n    type: alpaca\n    split: test"),
            {"dropped.yml:6: datasets.type = alpaca", "dropped.yml:7: datasets.split = test"}) == "");
  for (const std::string harmless :
       {"neftune_noise_alpha: 0", "neftune_noise_alpha:", "load_in_8bit: false", "tensor_parallel_size: 1",
        "group_by_length: false", "wandb_anything: x", "logging_steps: 0.5", "roles_to_train: [assistant]",
        "flash_attn_rms_norm: true", "fsdp: [full_shard, auto_wrap]", "model_type: LlamaForCausalLM",
        "chat_template: tokenizer_default", "num_processes: 1",
        "plugins: [axolotl.integrations.liger.LigerPlugin]"})
    CHECK_MESSAGE(error(harmless) == "", harmless);
  std::ofstream("four_bits.json") << R"({"load_in_4bit": true})";
  CHECK(has(test::error_of([] { converted_config("four_bits.json", 1); }),
            "4-bit weights are asked for, but no adapters"));
}

TEST_CASE("numbers outside of their bounds are refused, and so is their product") {
  const auto error = [](const std::string& lines, int ranks = 1) {
    std::ofstream("numbers.yml") << lines << '\n';
    return test::error_of([=] { converted_config("numbers.yml", ranks); });
  };
  CHECK(test::missing_from(error("gradient_accumulation_steps: 1e300"), {"1e300", "from 1 to 262144"}) == "");
  for (const char* n : {"0", "-4", "0.5", "262145", "auto"})
    CHECK_MESSAGE(has(error(str("gradient_accumulation_steps: ", n)), "from 1 to 262144"), n);
  CHECK(test::missing_from(error("per_device_train_batch_size: 1000000000000"),
                           {"train.batch_size_per_device", "1 to 262144"}) == "");
  CHECK(test::missing_from(
            error("per_device_train_batch_size: 262144\ngradient_accumulation_steps: 262144", 1 << 20),
            {"72057594037927936 sequences", "262144 per device x 262144 accumulated x 1,048,576 ranks",
             "at most 262144"}) == "");
  CHECK(has(error("base_model: m\nnum_epochs: 0\nevals_per_epoch: 1e300"), "evals_per_epoch = 1e300"));
  const auto [text, c] = convert("warmup.json", R"({"warmup_steps": 0.03})");
  CHECK(c.schedule.warmup_ratio == 0.03);
}

TEST_CASE("a file of accelerate is answered with the option that reads it") {
  std::ofstream("accelerate.yml") << "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n";
  CHECK(test::missing_from(test::error_of([] { converted_config("accelerate.yml", 1); }),
                           {"accelerate.yml:1", "train --accelerate accelerate.yml"}) == "");
}

TEST_CASE("a file that cannot be read is refused with its line") {
  const auto error = [](const std::string& content) {
    std::ofstream("foreign.yml") << content;
    return test::error_of([] { converted_config("foreign.yml", 1); });
  };
  CHECK(error("") == "foreign.yml: has no keys");
  CHECK(has(error("a: 1\nb: [\n"), "foreign.yml:"));
  CHECK(has(error("- a\n- b\n"), "is a list, must have the form key: value"));
  CHECK(has(test::error_of([] { converted_config("nowhere.yml", 1); }), "nowhere.yml"));
}
