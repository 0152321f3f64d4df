#include "train/run/preflight.h"

#include "runtime/network.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

TEST_CASE("the table of hosts has one line for each, with the ranks and devices of all of them") {
  CHECK(host_table({{"node1", "cuda:0", "eth0 10.0.0.1 (25 Gb/s)"},
                    {"node12", "cuda:0", "eth0 10.0.0.2 (no link)"},
                    {"node1", "cuda:1", "eth0 10.0.0.1 (25 Gb/s)"},
                    {"node12", "cuda:1", "eth0 10.0.0.2 (no link)"}}) ==
        "hosts     host    ranks  devices         network interfaces\n"
        "          node1   0, 2   cuda:0, cuda:1  eth0 10.0.0.1 (25 Gb/s)\n"
        "          node12  1, 3   cuda:0, cuda:1  eth0 10.0.0.2 (no link)\n");
  CHECK(host_table({{"n", "2 threads", "loopback only"}, {"n", "2 threads", "loopback only"}}) ==
        "hosts     host  ranks  devices        network interfaces\n"
        "          n     0-1    2 x 2 threads  loopback only\n");
}

TEST_CASE("a host has network interfaces, or none but the loopback") {
  CHECK(!network_interfaces().empty());
  CHECK(network_interfaces().find("lo ") == std::string::npos);
}

TEST_CASE("a run on one host shows the table only when it is verbose") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("preflight");
  const test::Finished quiet = workshop.train(2, ""), verbose = workshop.train(2, "--verbose"),
                       alone = workshop.train(1, "--verbose");
  CHECK_MESSAGE(quiet.exit_code == 0, quiet.output);
  CHECK(quiet.output.find("\nhosts     ") == std::string::npos);
  CHECK_MESSAGE(test::after(verbose.output, "\nhosts     ").starts_with("host "), verbose.output);
  CHECK(test::after(verbose.output, "an all-reduce takes ").ends_with(" of 4.00 MiB"));
  CHECK(alone.output.find("\nhosts     ") != std::string::npos);
  CHECK(alone.output.find("an all-reduce takes ") == std::string::npos);
}
