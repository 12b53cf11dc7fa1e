// A package and its memory in the powercap framework, named as intel_rapl names them. Their counters follow the
// monotonic clock, at 10 W and 2 W, and turn over as those of hardware do.
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/powercap.h>

#define RANGE_UJ 262143328850ULL

struct counting_zone {
	struct powercap_zone zone;
	unsigned int watts;
};

static struct counting_zone package = { .watts = 10 }, memory = { .watts = 2 };

static int get_energy_uj(struct powercap_zone *zone, u64 *energy_uj)
{
	unsigned int watts = container_of(zone, struct counting_zone, zone)->watts;

	div64_u64_rem(div_u64(ktime_get_ns(), 1000) * watts, RANGE_UJ, energy_uj);
	return 0;
}

static int get_max_energy_range_uj(struct powercap_zone *zone, u64 *range_uj)
{
	*range_uj = RANGE_UJ;
	return 0;
}

static int release(struct powercap_zone *zone)
{
	return 0;
}

static const struct powercap_zone_ops zone_ops = {
	.get_energy_uj = get_energy_uj,
	.get_max_energy_range_uj = get_max_energy_range_uj,
	.release = release,
};

// The framework takes no zone without a limit.
static int get_limit_uw(struct powercap_zone *zone, int id, u64 *limit_uw)
{
	*limit_uw = 100000000;
	return 0;
}

static int set_limit_uw(struct powercap_zone *zone, int id, u64 limit_uw)
{
	return -EPERM;
}

static int get_window_us(struct powercap_zone *zone, int id, u64 *window_us)
{
	*window_us = 1000000;
	return 0;
}

static int set_window_us(struct powercap_zone *zone, int id, u64 window_us)
{
	return -EPERM;
}

static const struct powercap_zone_constraint_ops limit_ops = {
	.get_power_limit_uw = get_limit_uw,
	.set_power_limit_uw = set_limit_uw,
	.get_time_window_us = get_window_us,
	.set_time_window_us = set_window_us,
};

static int __init millrace_zones_init(void)
{
	struct powercap_control_type *control;
	struct powercap_zone *made;

	control = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(control))
		return PTR_ERR(control);
	made = powercap_register_zone(&package.zone, control, "package-0", NULL, &zone_ops, 1, &limit_ops);
	if (!IS_ERR(made))
		made = powercap_register_zone(&memory.zone, control, "dram", made, &zone_ops, 1, &limit_ops);
	return PTR_ERR_OR_ZERO(made);
}

module_init(millrace_zones_init);
MODULE_LICENSE("GPL");
