#include "planner/files/cluster_file.h"

#include <filesystem>
#include <map>
#include <variant>

#include <toml++/toml.h>

#include "runtime/check.h"
#include "runtime/spelling.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/fields.h"
#include "train/config/toml_limits.h"

namespace flatshard {
namespace {

// Bounds of the keys of a cluster file, wide enough for future machines: of counts, of GB/s, of shares of a
// rate, of microseconds, and of the deviations of a rank's speed.
constexpr Bounds kCount{1, 1024}, kRate{1e-3, 1e5}, kShare{1e-3, 1}, kLatency{0, 1e5}, kDeviation{0, 1};

const toml::table& table_of(const toml::node& node, const std::string& path, const std::string& key) {
  const toml::table* const table = node.as_table();
  check(table, path, ':', node.source().begin.line, ": ", key, " must be a section, such as [node]");
  return *table;
}

// Reads the keys of a cluster file into a Cluster; an unknown key is an Error.
class ClusterFile {
 public:
  ClusterFile(Cluster& cluster, std::string path) : cluster_(cluster), path_(std::move(path)) {}

  void read(const toml::table& root) {
    if (const toml::node* const kind = root.at_path("gpu.kind").node()) {
      const auto name = kind->value_exact<std::string>();
      check(name.has_value(), where(*kind), "gpu.kind must be a string, one of ", gpu_model_names());
      cluster_ = usual_cluster(gpu_model(*name));
      cluster_.source = path_;
    } else {
      fail(str(path_, ": gpu.kind is missing: name one of ", gpu_model_names()));
    }
    if (const toml::node* const kind = root.at_path("node.link.kind").node()) {
      const auto name = kind->value_exact<std::string>();
      check(name == "nvlink" || name == "pcie", where(*kind),
            "node.link.kind must be \"nvlink\" or \"pcie\"");
      cluster_.set_nvlink(name == "nvlink");
    }
    read_section(root, "");
    if (const toml::node* const ops = root.at_path("gpu.ops").node()) {
      const auto name = ops->value_exact<std::string>();
      check(name.has_value(), where(*ops), "gpu.ops must be a path, of a file of bench --device cuda --json");
      cluster_.op_table = (std::filesystem::path(path_).parent_path() / *name).string();
      cluster_.measured_ops = read_op_table(cluster_.op_table, cluster_);
    }
  }

 private:
  // A number and its bounds. A count is a whole number.
  struct Key {
    std::variant<double*, int64_t*> number;
    Bounds bounds;
  };

  std::string where(const toml::node& node) const { return str(path_, ':', node.source().begin.line, ": "); }

  void read_section(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      if (key == "gpu.kind" || key == "gpu.ops" || key == "node.link.kind") continue;
      if (key == "network.tiers")
        read_tiers(node);
      else if (node.is_table())
        read_section(table_of(node, path_, key), key + ".");
      else
        read_number(node, key);
    }
  }

  void read_number(const toml::node& node, const std::string& key) {
    const std::map<std::string, Key> keys{
        {"gpu.power_watts", {&cluster_.power_watts, {1, 1e5}}},
        {"gpu.price_per_hour", {&cluster_.price_per_hour, {0, 1e5}}},
        {"node.gpus", {&cluster_.node_gpus, kCount}},
        {"node.link.gbps", {&cluster_.link_gbps, kRate}},
        {"node.link.efficiency", {&cluster_.link_efficiency, kShare}},
        {"node.link.step_us", {&cluster_.link_step_us, kLatency}},
        {"node.host.gbps", {&cluster_.host_gbps, kRate}},
        {"node.host.gpus_per_switch", {&cluster_.gpus_per_switch, kCount}},
        {"node.host.update_gbps", {&cluster_.update_gbps, kRate}},
        {"node.host.issue_us", {&cluster_.issue_us, kLatency}},
        {"network.nics_per_node", {&cluster_.nics_per_node, kCount}},
        {"network.gbps", {&cluster_.nic_gbps, kRate}},
        {"network.efficiency", {&cluster_.nic_efficiency, kShare}},
        {"network.step_us", {&cluster_.network_step_us, kLatency}},
        {"jitter.fixed", {&cluster_.jitter_fixed, kDeviation}},
        {"jitter.step", {&cluster_.jitter_step, kDeviation}},
    };
    const auto found = keys.find(key);
    if (found == keys.end()) {
      std::vector<std::string> names{"gpu.kind", "gpu.ops", "node.link.kind", "network.tiers"};
      for (const auto& [known, unused] : keys) names.push_back(known);
      const std::string meant = similar_word(key, names);
      fail(str(where(node), key, ": unknown key", meant.empty() ? "" : str("; did you mean ", meant, '?')));
    }
    set(found->second, node, key);
  }

  void set(const Key& key, const toml::node& node, const std::string& name) const {
    const auto [least, most] = key.bounds;
    int64_t* const* const count = std::get_if<int64_t*>(&key.number);
    const bool is_number = node.is_integer() || node.is_floating_point();
    const double value = is_number ? *node.value<double>() : 0;
    check((count ? node.is_integer() : is_number) && value >= least && value <= most, where(node), name,
          is_number ? str(" is ", value, ',') : "", " must be a ", count ? "whole " : "", "number from ",
          least, " to ", most);
    if (count)
      **count = *node.value<int64_t>();
    else
      *std::get<double*>(key.number) = value;
  }

  void read_tiers(const toml::node& node) {
    const toml::array* const tiers = node.as_array();
    constexpr const char* kForm = "network.tiers must be a list such as [{nodes = 32, oversubscription = 2}]";
    check(tiers, where(node), kForm);
    cluster_.tiers.clear();
    for (const toml::node& item : *tiers) {
      const toml::table* const table = item.as_table();
      check(table && table->size() == 2 && table->contains("nodes") && table->contains("oversubscription"),
            where(node), kForm);
      NetworkTier tier;
      set({&tier.nodes, {1, 1 << 20}}, *table->get("nodes"), "nodes of network.tiers");
      set({&tier.oversubscription, {1, 1e3}}, *table->get("oversubscription"),
          "oversubscription of network.tiers");
      check(cluster_.tiers.empty() || cluster_.tiers.back().nodes < tier.nodes, where(node),
            "network.tiers must have ascending numbers of nodes");
      cluster_.tiers.push_back(tier);
    }
  }

  Cluster& cluster_;
  std::string path_;
};

}  // namespace

Cluster read_cluster(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 16;
  const std::string text = read_whole_file(path, kMostBytes);
  check_toml_limits(text, path);
  Cluster cluster;
  try {
    const toml::table root = toml::parse(text);
    ClusterFile(cluster, path).read(root);
  } catch (const toml::parse_error& error) {
    fail(str(path, ':', error.source().begin.line, ": ", std::string(error.description())));
  } catch (const BrokenAssertion&) {
    fail(str(path, ": is not valid TOML"));
  }
  return cluster;
}

Cluster cluster_named(const std::string& name) {
  return name.ends_with(".toml") ? read_cluster(name) : usual_cluster(gpu_model(name));
}

}  // namespace flatshard
