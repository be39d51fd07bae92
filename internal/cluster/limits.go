package cluster

// The bounds of a configuration. Validate refuses what is beyond them and names the bound.
const (
	MaxFileBytes        = 1 << 20 // bytes of one configuration file
	MaxNodes            = 256
	MaxGroupnets        = 64
	MaxSubnets          = 256  // in all groupnets together
	MaxPools            = 256  // in all subnets together
	MaxPoolAddresses    = 4096 // addresses in the ranges of one pool
	MaxServiceAddresses = 32   // service addresses of one subnet
	MaxVoters           = 5    // members of the embedded store

	// ManyServiceAddresses is the number of service addresses of a subnet above which Validate warns: each costs every
	// client of a resolver that tries them all, and six already survive five losses.
	ManyServiceAddresses = 6
)

// Bounds of the lists and names inside one object.
const (
	maxInterfaces    = 64 // of a node
	maxNodeAddresses = 16
	maxDNSServers    = 8
	maxDNSSearch     = 8
	maxRanges        = 1024
	maxPoolMembers   = 4096 // ifaces of a pool
	maxRules         = 64
	maxChecks        = 16
	maxAliases       = 64
	maxReverseZones  = 64
	maxRoutes        = 64
	maxHooks         = 32
	maxEndpoints     = 32
	maxClientPorts   = 256
	maxStatusCodes   = 64
	maxArguments     = 64
	maxArgumentBytes = 4096
	maxLNN           = 65535
	maxWeight        = 1000

	maxDepth  = 32                    // nesting of a YAML file
	maxKeys   = MaxPoolAddresses + 64 // keys of one YAML mapping; pins has the most
	maxFaults = 100
)
