package steering

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// notes are what is worked out of a configuration and of records, and asked for at each look although they seldom change. Nobody changes
// them: worlds share them. What they were worked out of is in them, so that they are used of that alone.
type notes struct {
	config *cluster.Config
	self   int
	pools  []cluster.PoolID // that are configured, sorted
	sites  map[cluster.PoolID]poolSite
	hosts  map[cluster.SubnetID]map[int][]cluster.Member // see serviceInterfaces; of the subnets with service addresses

	recorded []cluster.PoolID // that have a record, by their dotted ids
	records  map[cluster.PoolID]recordNotes
	owners   map[int]tenure.Incarnation // the latest of each node that owns something by the pools' records
}

// recordNotes are those of one record.
type recordNotes struct {
	record    tenure.Record
	addresses []netip.Addr // sorted
	concerned []netip.Addr // see World.concerned
	owners    []tenure.Claim
}

// Recall has what is asked of a world again and again worked out once, and takes from a world that was made before what is still so: of the
// same configuration, and of those records that are the very same ones. It belongs to the making of a world, when its configuration and
// records are in it; these must never change in place. Nothing depends on it but the time that a look takes. Before may be nil.
func (w *World) Recall(before *World) {
	n, old := &notes{config: w.Config, self: w.Self}, (*notes)(nil)
	if before != nil && before.notes != nil && before.notes.self == w.Self {
		old = before.notes
	}
	if old != nil && old.config == w.Config {
		n.pools, n.sites, n.hosts = old.pools, old.sites, old.hosts
	} else {
		n.lay(w.Config)
	}
	n.read(w, old)
	w.notes = n
}

// lay works out what is asked of the configuration.
func (n *notes) lay(config *cluster.Config) {
	n.pools = config.Pools()
	n.sites = make(map[cluster.PoolID]poolSite, len(n.pools))
	for _, id := range n.pools {
		n.sites[id] = layPool(config, id)
	}
	n.hosts = map[cluster.SubnetID]map[int][]cluster.Member{}
	for _, id := range config.Subnets() {
		if len(config.ServiceAddresses(id)) > 0 {
			n.hosts[id] = findServiceInterfaces(config, id)
		}
	}
}

// read works out what is asked of the records.
func (n *notes) read(w *World, old *notes) {
	n.records = make(map[cluster.PoolID]recordNotes, len(w.Pools))
	for id, record := range w.Pools {
		known, noted := old.of(id, record)
		if !noted {
			known = noteRecord(record, w.Self)
		}
		n.records[id] = known
	}
	if old.ofAll(w.Pools) {
		n.recorded, n.owners = old.recorded, old.owners
		return
	}
	n.recorded, n.owners = sortedIDs(w.Pools), map[int]tenure.Incarnation{}
	for _, known := range n.records {
		for _, owner := range known.owners {
			n.owners[owner.LNN] = max(n.owners[owner.LNN], owner.Incarnation)
		}
	}
}

// of is what is noted of a pool's record; false if that is not of this very one.
func (n *notes) of(id cluster.PoolID, record tenure.Record) (recordNotes, bool) {
	if n == nil {
		return recordNotes{}, false
	}
	known, has := n.records[id]
	return known, has && known.record.Is(record)
}

// ofAll reports whether the notes are of these very records.
func (n *notes) ofAll(pools map[cluster.PoolID]tenure.Record) bool {
	if n == nil || len(n.records) != len(pools) {
		return false
	}
	for id, record := range pools {
		if _, noted := n.of(id, record); !noted {
			return false
		}
	}
	return true
}

func noteRecord(record tenure.Record, self int) recordNotes {
	known := recordNotes{record: record, addresses: slices.SortedFunc(maps.Keys(record), netip.Addr.Compare), concerned: concernedBy(record, self), owners: make([]tenure.Claim, 0, len(record))}
	for _, st := range record {
		if !st.Owner.IsZero() {
			known.owners = append(known.owners, st.Owner)
		}
	}
	return known
}

// concernedBy are the addresses of a record in whose statements a node is named, sorted: of others it never holds the address, and there is
// nothing that it could let go of or acknowledge.
func concernedBy(record tenure.Record, lnn int) []netip.Addr {
	var addresses []netip.Addr
	for address, st := range record {
		if st.Owner.LNN == lnn || st.Next.LNN == lnn || st.Former.LNN == lnn || st.To.LNN == lnn {
			addresses = append(addresses, address)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// concerned are the addresses of a pool's record in whose statements this node is named, sorted.
func (w *World) concerned(id cluster.PoolID) []netip.Addr {
	record := w.Pools[id]
	if known, noted := w.notes.of(id, record); noted && w.notes.self == w.Self {
		return known.concerned
	}
	return concernedBy(record, w.Self)
}

// recordedIn are the addresses of a pool's record, sorted; to be read only.
func (w *World) recordedIn(id cluster.PoolID) []netip.Addr {
	record := w.Pools[id]
	if known, noted := w.notes.of(id, record); noted {
		return known.addresses
	}
	return slices.SortedFunc(maps.Keys(record), netip.Addr.Compare)
}

// Concerning are the statements on record in which this node is named: all that are about what it has or may come to have. The pool is
// zero for those of service addresses. It stops when yield returns false.
func (w *World) Concerning(yield func(id cluster.PoolID, address netip.Addr, st tenure.Statement) bool) {
	for id, record := range w.Pools {
		for _, address := range w.concerned(id) {
			if !yield(id, address, record[address]) {
				return
			}
		}
	}
	for key, st := range w.Services {
		if st.Owner.LNN == w.Self || st.Next.LNN == w.Self || st.Former.LNN == w.Self || st.To.LNN == w.Self {
			if !yield(cluster.PoolID{}, key.Address, st) {
				return
			}
		}
	}
}

// latestOwners is the latest incarnation of each node that owns something.
func (w *World) latestOwners() map[int]tenure.Incarnation {
	latest := map[int]tenure.Incarnation{}
	if w.notes.ofAll(w.Pools) {
		maps.Copy(latest, w.notes.owners)
	} else {
		for _, record := range w.Pools {
			for _, st := range record {
				latest[st.Owner.LNN] = max(latest[st.Owner.LNN], st.Owner.Incarnation)
			}
		}
	}
	for _, st := range w.Services {
		latest[st.Owner.LNN] = max(latest[st.Owner.LNN], st.Owner.Incarnation)
	}
	delete(latest, 0) // nobody
	return latest
}

// laid reports whether the notes are of the world's configuration.
func (w *World) laid() bool { return w.notes != nil && w.notes.config == w.Config }

// poolSite is one pool as a decision finds it: what of the configuration and the records it looks at again and again.
type poolSite struct {
	id        cluster.PoolID
	pool      *cluster.Pool
	static    bool
	members   []cluster.Member
	addresses []netip.Addr
	record    tenure.Record
}

func (w *World) poolSite(id cluster.PoolID) (site poolSite, exists bool) {
	if w.laid() {
		site, exists = w.notes.sites[id]
	} else if _, _, _, exists = w.Config.Pool(id); exists {
		site = layPool(w.Config, id)
	}
	if exists {
		site.record = w.Pools[id]
	}
	return site, exists
}

// layPool is a configured pool without its record.
func layPool(config *cluster.Config, id cluster.PoolID) poolSite {
	pool, _, _, _ := config.Pool(id)
	return poolSite{id: id, pool: pool, static: pool.AllocMethod == cluster.AllocStatic, members: config.Members(id), addresses: config.Addresses(id)}
}

// has reports whether an address is one of the pool's.
func (s *poolSite) has(address netip.Addr) bool {
	_, configured := slices.BinarySearchFunc(s.addresses, address, netip.Addr.Compare)
	return configured
}

// Members are those of a pool, as the configuration has them; to be read only.
func (w *World) Members(id cluster.PoolID) []cluster.Member {
	if w.laid() {
		return w.notes.sites[id].members
	}
	return w.Config.Members(id)
}

// ConfiguredPools are the pools of the configuration, sorted; to be read only.
func (w *World) ConfiguredPools() []cluster.PoolID {
	if w.laid() {
		return w.notes.pools
	}
	return w.Config.Pools()
}

// sortedPools are the pools that have a record, by their dotted ids; to be read only.
func sortedPools(w *World) []cluster.PoolID {
	if w.notes.ofAll(w.Pools) {
		return w.notes.recorded
	}
	return sortedIDs(w.Pools)
}

func sortedIDs(pools map[cluster.PoolID]tenure.Record) []cluster.PoolID {
	names := make(map[string]cluster.PoolID, len(pools))
	for id := range pools {
		names[id.String()] = id
	}
	ids := make([]cluster.PoolID, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		ids = append(ids, names[name])
	}
	return ids
}
