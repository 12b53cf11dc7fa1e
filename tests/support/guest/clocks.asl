// What firmware says of processors whose clock can be set, so that the driver acpi-cpufreq takes them: two cores of two
// siblings each, one clock per core, four clocks. The registers are ports that nobody listens at: no clock changes.
DefinitionBlock ("", "SSDT", 2, "MLRACE", "CLOCKS", 1)
{
    External (\_SB.CPUS.C000, DeviceObj)
    External (\_SB.CPUS.C001, DeviceObj)
    External (\_SB.CPUS.C002, DeviceObj)
    External (\_SB.CPUS.C003, DeviceObj)

    Name (\_SB.PCTL, Package () {
        ResourceTemplate () { Register (SystemIO, 16, 0, 0x0880, 2) },
        ResourceTemplate () { Register (SystemIO, 16, 0, 0x0882, 2) }
    })
    // MHz, mW, microseconds of transition and of the bus, what is written, what is read back.
    Name (\_SB.CLKS, Package () {
        Package () { 3000, 30000, 10, 10, 0x1E, 0x1E },
        Package () { 2400, 20000, 10, 10, 0x18, 0x18 },
        Package () { 1800, 14000, 10, 10, 0x12, 0x12 },
        Package () { 1200,  8000, 10, 10, 0x0C, 0x0C }
    })
    // Two processors whose clock is set for both by either.
    Name (\_SB.COR0, Package () { Package () { 5, 0, 0, 0xFC, 2 } })
    Name (\_SB.COR1, Package () { Package () { 5, 0, 1, 0xFC, 2 } })

    Scope (\_SB.CPUS.C000)
    {
        Method (_PCT) { Return (\_SB.PCTL) }
        Method (_PSS) { Return (\_SB.CLKS) }
        Method (_PPC) { Return (0) }
        Method (_PSD) { Return (\_SB.COR0) }
    }
    Scope (\_SB.CPUS.C001)
    {
        Method (_PCT) { Return (\_SB.PCTL) }
        Method (_PSS) { Return (\_SB.CLKS) }
        Method (_PPC) { Return (0) }
        Method (_PSD) { Return (\_SB.COR0) }
    }
    Scope (\_SB.CPUS.C002)
    {
        Method (_PCT) { Return (\_SB.PCTL) }
        Method (_PSS) { Return (\_SB.CLKS) }
        Method (_PPC) { Return (0) }
        Method (_PSD) { Return (\_SB.COR1) }
    }
    Scope (\_SB.CPUS.C003)
    {
        Method (_PCT) { Return (\_SB.PCTL) }
        Method (_PSS) { Return (\_SB.CLKS) }
        Method (_PPC) { Return (0) }
        Method (_PSD) { Return (\_SB.COR1) }
    }
}
