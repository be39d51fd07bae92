/*
 * Once faults stop, somebody holds: part of lease.pml, with LIVE.
 *
 * At any moment of the storm that lease.pml is, calm may begin. From then on nothing is lost and everything arrives within the
 * tick; observers that have silence to tell tell it, M asks all of them in that tick, and N, unless it is dead, sends each
 * interval. Two things may stay broken: N may be dead or deaf (it sends, and hears nothing), and one observer may be dead.
 * After BOUND ticks either N has its right, or M has found it Down (and takes: record.pml). With REDUNDANT instead: an N that
 * has its right has it by all observers that live, so that one observer's hiccup has cost it nothing that lasts.
 *
 * What is chosen (who is dead, N's phase, whether M asks before or after N sends in each tick) is chosen once, at the start of
 * the calm: the storm before it reaches every state anyway. The observers' own leases are taken to live, since theirs are
 * watched by the same rules. Unlike in the runs for safety, N counts after a lapse only answers to marked heartbeats, the
 * bound on answering them is in force, and an observer that hears N during its promise gives no new confirmation.
 */
#define BOUND (4 * T + 6 * I)
byte n, beat, absent, left_to_do; /* absent: the dead observer; 3: none */
bit dead, deaf, early;

inline receives(x) {
	if
	:: absent == x -> skip
	:: absent != x && up && promise[x] == 0 -> left[x] = T; window[x] = 0;
		if :: !deaf -> gained = T; gets(x, 0) :: else fi
	:: absent != x && up && promise[x] > 0 -> HEARS(x)
	:: absent != x && !up && ANSWERS(x) -> left[x] = T;
		if :: window[x] == 0 -> window[x] = T + 1 :: else fi;
		if :: !deaf -> gained = T; gets(x, 1) :: else fi
	:: absent != x && !up && !ANSWERS(x) ->
#ifdef MARKHEARD
		left[x] = (confirmed[x] || !watched[x] -> T : left[x])
#else
		skip
#endif
	fi
}
inline beats() {
	if
	:: !dead && beat == 0 -> beat = I; receives(0); receives(1); receives(2)
	:: else
	fi;
	beat = LESS(beat)
}
inline tells(x) {
	if
	:: question == 0 && absent != x && left[x] == 0 && !listens[x] && !yes[x] -> confirm(x); printf("observer %d confirms\n", x); counts(x)
	:: else
	fi
}
inline asks() {
	noquestion();
	if :: !found -> question = 0 :: else fi;
	tells(0); tells(1); tells(2);
	noquestion()
}
#ifdef REDUNDANT
#define SETTLED (found || !up || ((lease[0] || absent == 0) && (lease[1] || absent == 1) && (lease[2] || absent == 2)))
#else
#define SETTLED (found || up)
#endif
inline forget(x) {
	left[x] = 0; promise[x] = 0; listens[x] = 0; confirmed[x] = 0; watched[x] = 0; lease[x] = 0; window[x] = 0
}
inline calm() {
	absent = 3;
	if :: true :: absent = 0 :: absent = 1 :: absent = 2 fi;
	if :: true :: dead = 1 :: deaf = 1 fi;
	if :: early = 1 :: early = 0 fi;
	beat = 0;
	do :: beat < I - 1 -> beat++ :: break od;
	true; /* SPIN forbids a jump into a d_step */
	d_step {
		printf("=== calm: N dead %d, N deaf %d, dead observer %d (3: none)\n", dead, deaf, absent);
		left_to_do = BOUND;
		do
		:: left_to_do > 0 && !found -> left_to_do--;
			tick(); ageholder();
			if :: early -> asks() :: else fi;
			beats();
			if :: !early -> asks() :: else fi;
			printf("--- a calm tick: N up %d; counts %d %d %d, leases %d %d %d\n", up, left[0], left[1], left[2], lease[0], lease[1], lease[2])
		:: else -> break
		od;
		assert(SETTLED);
		forget(0); forget(1); forget(2); noquestion();
		left_to_do = 0; beat = 0; absent = 0; dead = 0; deaf = 0; early = 0;
		found = 1; up = 0; over = 1; plain = 0; marked = 0
	};
	goto done
}
