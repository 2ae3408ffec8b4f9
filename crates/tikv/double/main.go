// A TiKV cluster for tests: PD and one TiKV in one process, each on a port of its own.
//
// What stores keys is mocktikv, the stand-in that TiKV's client for Go is tested against. It keeps the rules of
// TiKV's transactions (locks, write records, rollbacks, conflicts, resolving what others have left) in memory. This
// program is a front to it that speaks the protocol of TiKV and PD, so that any client can use it, and a network
// that breaks when it is told to.
//
// It prints the port of PD, then does what the lines on its standard input say, and ends with them.
package main

import (
	"bufio"
	"fmt"
	"log"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Largest message that is taken.
const messageBytesMax = 64 << 20

func main() {
	placementListener, tikvListener := listen(), listen()
	client, cluster, pd, err := testutils.NewMockTiKV("", nil)
	if err != nil {
		log.Fatal(err)
	}
	store, _, _ := testutils.BootstrapWithSingleStore(cluster)
	address := tikvListener.Addr().String()
	cluster.UpdateStoreAddr(store, address)

	placementNetwork := newNetwork(placementListener)
	network := newNetwork(tikvListener)
	network.placement = placementNetwork
	front := &placement{client: pd, address: placementListener.Addr().String()}
	serve(placementNetwork, func(server *grpc.Server) { pdpb.RegisterPDServer(server, front) })
	back := &tikv{client: client, address: address}
	serve(network, func(server *grpc.Server) { tikvpb.RegisterTikvServer(server, back) })
	_, port, _ := net.SplitHostPort(front.address)
	fmt.Println(port)

	keys := &regions{cluster: cluster, client: pd}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		word, rest, _ := strings.Cut(orders.Text(), " ")
		switch word {
		case "split":
			fmt.Println(keys.split(rest))
		case "safe-point":
			fmt.Println(front.safePoint.Load())
		default:
			fmt.Println(network.obey(word, rest))
		}
	}
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func serve(network *network, register func(*grpc.Server)) {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(messageBytesMax),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.UnaryInterceptor(network.carry),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	register(server)
	go func() {
		if err := server.Serve(network); err != nil {
			log.Fatal(err)
		}
	}()
}
