package main

import (
	"context"
	"fmt"
	"math/rand"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// What writes: the two steps of a transaction. A cut hits one of them.
	prewrite = "/tikvpb.Tikv/KvPrewrite"
	commit   = "/tikvpb.Tikv/KvCommit"
	// How long a request that comes late is on its way.
	late = 10 * time.Millisecond
)

// What becomes of a request.
type fate int

const (
	passes fate = iota
	// It does not arrive.
	lost
	// It arrives when the client has long given up this connection.
	tooLate
	// It is carried out; the answer does not arrive.
	answerLost
)

// The commit that is to be held back.
const (
	released = iota
	awaited
	held
)

// What becomes of commits from an order on.
const (
	commitsPass = iota
	// The next one is carried out, and its answer lost.
	answerIsLost
	// None arrives.
	commitsAreLost
)

// network accepts connections, and cuts them.
type network struct {
	net.Listener
	mutex       sync.Mutex
	connections map[string]net.Conn
	random      *rand.Rand
	cutOneIn    int
	cuts        int
	// Nothing goes through: connections are closed, new ones at once.
	down atomic.Bool
	// The next commit is carried out, its answer is lost, and from then on nothing goes through.
	downAtCommit atomic.Bool
	// The next commit is held back until it is released, its client cut off, and nothing else goes through.
	hold atomic.Int32
	// The next commit is carried out and its answer is lost; no later one arrives, and all else goes through.
	lose atomic.Int32
	// What was held back has arrived; this is what came of it.
	arrived atomic.Pointer[string]
	// PD's network, where this is TiKV's.
	placement *network
	// With the next commit, PD's goes down too.
	placementToo atomic.Bool
}

func newNetwork(listener net.Listener) *network {
	return &network{Listener: listener, connections: map[string]net.Conn{}}
}

// Accept gives the next connection that is not to be cut at once.
func (n *network) Accept() (net.Conn, error) {
	for {
		connection, err := n.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if n.down.Load() {
			connection.Close()
			continue
		}
		n.mutex.Lock()
		n.connections[connection.RemoteAddr().String()] = connection
		n.mutex.Unlock()
		return connection, nil
	}
}

func (n *network) cutOff(ctx context.Context) {
	from, _ := peer.FromContext(ctx)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if connection := n.connections[from.Addr.String()]; connection != nil {
		connection.Close()
		delete(n.connections, from.Addr.String())
	}
}

func (n *network) cutAllOff() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for name, connection := range n.connections {
		connection.Close()
		delete(n.connections, name)
	}
}

// fall lets nothing through any more.
func (n *network) fall() {
	n.down.Store(true)
	n.cutAllOff()
}

func (n *network) fate(method string) fate {
	if method != prewrite && method != commit {
		return passes
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.random == nil || n.random.Intn(n.cutOneIn) != 0 {
		return passes
	}
	n.cuts++
	return []fate{lost, tooLate, answerLost}[n.random.Intn(3)]
}

// carry lets a request through, or does not.
func (n *network) carry(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	gone := status.Error(codes.Unavailable, "cut")
	if info.FullMethod == commit && n.downAtCommit.CompareAndSwap(true, false) {
		n.down.Store(true)
		handle(context.Background(), request)
		if n.placementToo.Swap(false) {
			n.placement.fall()
		}
		n.cutAllOff()
		return nil, gone
	}
	if info.FullMethod == commit && n.hold.CompareAndSwap(awaited, held) {
		n.down.Store(true)
		n.cutAllOff()
		for n.hold.Load() == held {
			time.Sleep(late)
		}
		answer, err := handle(context.Background(), request)
		said := fmt.Sprint(answer, err)
		n.arrived.Store(&said)
		return nil, gone
	}
	if n.down.Load() {
		n.cutOff(ctx)
		return nil, gone
	}
	if info.FullMethod == commit && n.lose.Load() != commitsPass {
		if n.lose.CompareAndSwap(answerIsLost, commitsAreLost) {
			handle(context.Background(), request)
		}
		return nil, gone
	}
	switch n.fate(info.FullMethod) {
	case lost:
		n.cutOff(ctx)
		return nil, gone
	case tooLate:
		n.cutOff(ctx)
		time.Sleep(late)
		handle(context.Background(), request)
		return nil, gone
	case answerLost:
		handle(context.Background(), request)
		n.cutOff(ctx)
		return nil, gone
	}
	return handle(ctx, request)
}

// obey does what an order says, and gives the answer to it.
func (n *network) obey(word, rest string) string {
	switch word {
	case "cut":
		var seed int64
		n.mutex.Lock()
		defer n.mutex.Unlock()
		if _, err := fmt.Sscan(rest, &n.cutOneIn, &seed); err != nil {
			return err.Error()
		}
		n.random = rand.New(rand.NewSource(seed))
	case "cuts":
		n.mutex.Lock()
		defer n.mutex.Unlock()
		return fmt.Sprint(n.cuts)
	case "down":
		n.fall()
		n.placement.fall()
	case "up":
		n.lose.Store(commitsPass)
		n.down.Store(false)
		n.placement.down.Store(false)
	case "all-down-at-commit":
		n.placementToo.Store(true)
		n.downAtCommit.Store(true)
	case "down-at-commit":
		n.downAtCommit.Store(true)
	case "lose-commits":
		n.lose.Store(answerIsLost)
	case "hold-commit":
		n.hold.Store(awaited)
	case "release-commit":
		n.hold.Store(released)
	case "arrived":
		if said := n.arrived.Load(); said != nil {
			return *said
		}
		return "no"
	default:
		return "no such order: " + word
	}
	return "ok"
}
