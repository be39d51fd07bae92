package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/holdfast/holdfast/internal/verdict/oncrpc"
)

// rpc is good when the null procedure of the program answers (RFC 5531 section 12.1).
type rpc struct {
	at               netip.AddrPort
	program, version uint32
	dial             Dialer
}

func (p rpc) Try(ctx context.Context) (string, error) {
	what := fmt.Sprintf("rpc null call to program %d version %d at %s", p.program, p.version, p.at)
	err := converse(ctx, p.dial, "tcp", p.at, func(conn net.Conn) error {
		xid := rand.Uint32() //nolint:gosec // tells replies apart; nothing rests on its secrecy
		if err := oncrpc.WriteRecord(conn, oncrpc.NullCall(xid, p.program, p.version)); err != nil {
			return err
		}
		record, err := oncrpc.ReadRecord(conn)
		if err != nil {
			return err
		}
		reply, err := oncrpc.ParseReply(record)
		if err != nil {
			return err
		}
		if reply.XID != xid {
			return fmt.Errorf("the reply is to call %#x, not to %#x", reply.XID, xid)
		}
		return reply.Err()
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return what + " answered", nil
}
