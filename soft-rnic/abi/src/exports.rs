//! Symbols of the functions, and their versions.
//!
//! `.symver` needs the symbol to be defined in the object that names its version, and the compiler
//! says of no function in which object it is. So the symbols are defined by assembly: each is a
//! jump to its function.

use core::arch::global_asm;

use crate::{address, device, events, fork, gids, kernel_structs, names, rate, sysfs, unsupported};

/// One symbol: a jump to the function. The text of the last arguments is its name.
macro_rules! symbol {
    ($version:literal, $function:path, $($name:tt)*) => {
        global_asm!(
            ".pushsection .text",
            concat!(".globl soft.", $($name)*),
            concat!(".type soft.", $($name)*, ", @function"),
            concat!("soft.", $($name)*, ": jmp {function}"),
            concat!(".size soft.", $($name)*, ", . - soft.", $($name)*),
            concat!(".symver soft.", $($name)*, ", ", $($name)*, "@@", $version, ", remove"),
            ".popsection",
            function = sym $function,
        );
    };
}

/// The symbols of each version: functions of a module, with their names behind `ibv_` as symbols,
/// then symbols of other names.
macro_rules! export {
    ($($version:literal {
        $($module:ident: $($name:ident)+;)*
        $($($symbol:literal)+ => $function:path;)*
    })*) => { $(
        $($(symbol!($version, $module::$name, "ibv_", stringify!($name));)+)*
        $($(symbol!($version, $function, $symbol);)+)*
    )* };
}

export! {
    "IBVERBS_1.0" {
        device: create_comp_channel destroy_comp_channel;
        kernel_structs: copy_path_rec_from_kern copy_path_rec_to_kern copy_qp_attr_from_kern;
        rate: rate_to_mult;
        sysfs: get_sysfs_path read_sysfs_file;
        "mult_to_ibv_rate" => rate::mult_to_rate;
    }
    "IBVERBS_1.1" {
        address: create_ah_from_wc init_ah_from_wc resolve_eth_l2_from_gid;
        device: ack_async_event ack_cq_events alloc_pd attach_mcast close_device create_ah
            create_cq create_qp create_srq dealloc_pd dereg_mr destroy_ah destroy_cq destroy_qp
            destroy_srq detach_mcast free_device_list get_device_guid get_device_list
            get_device_name modify_qp modify_srq open_device query_device query_gid query_pkey
            query_port query_qp query_srq reg_mr rereg_mr resize_cq;
        events: get_async_event get_cq_event;
        fork: fork_init;
        kernel_structs: copy_ah_attr_from_kern;
        names: event_type_str node_type_str port_state_str wc_status_str;
        rate: rate_to_mbps;
        "ibv_dofork_range" "ibv_dontfork_range" => fork::range;
        "mbps_to_ibv_rate" => rate::mbps_to_rate;
    }
    "IBVERBS_1.5" {
        gids: get_pkey_index;
    }
    "IBVERBS_1.6" {
        device: qp_to_qp_ex;
    }
    "IBVERBS_1.7" {
        device: reg_mr_iova;
    }
    "IBVERBS_1.8" {
        device: reg_mr_iova2;
    }
    "IBVERBS_1.9" {
        device: get_device_index;
    }
    "IBVERBS_1.10" {
        device: import_device import_mr import_pd unimport_mr unimport_pd;
        "ibv_query_ece" "ibv_set_ece" => unsupported::code;
    }
    "IBVERBS_1.11" {
        "_ibv_query_gid_ex" => device::query_gid_ex;
        "_ibv_query_gid_table" => gids::query_gid_table;
    }
    "IBVERBS_1.12" {
        "ibv_reg_dmabuf_mr" => unsupported::object;
    }
    "IBVERBS_1.13" {
        device: import_dm unimport_dm;
        fork: is_fork_initialized;
    }
    "IBVERBS_1.14" {
        device: query_qp_data_in_order;
    }
    "IBVERBS_PRIVATE_34" {
        gids: query_gid_type;
        "execute_ioctl" "ibv_cmd_advise_mr" "ibv_cmd_alloc_dm" "ibv_cmd_alloc_mw"
        "ibv_cmd_alloc_pd" "ibv_cmd_attach_mcast" "ibv_cmd_close_xrcd" "ibv_cmd_create_ah"
        "ibv_cmd_create_counters" "ibv_cmd_create_cq" "ibv_cmd_create_cq_ex" "ibv_cmd_create_flow"
        "ibv_cmd_create_flow_action_esp" "ibv_cmd_create_qp" "ibv_cmd_create_qp_ex2"
        "ibv_cmd_create_qp_ex" "ibv_cmd_create_rwq_ind_table" "ibv_cmd_create_srq"
        "ibv_cmd_create_srq_ex" "ibv_cmd_create_wq" "ibv_cmd_dealloc_mw" "ibv_cmd_dealloc_pd"
        "ibv_cmd_dereg_mr" "ibv_cmd_destroy_ah" "ibv_cmd_destroy_counters" "ibv_cmd_destroy_cq"
        "ibv_cmd_destroy_flow" "ibv_cmd_destroy_flow_action" "ibv_cmd_destroy_qp"
        "ibv_cmd_destroy_rwq_ind_table" "ibv_cmd_destroy_srq" "ibv_cmd_destroy_wq"
        "ibv_cmd_detach_mcast" "ibv_cmd_free_dm" "ibv_cmd_get_context" "ibv_cmd_modify_cq"
        "ibv_cmd_modify_flow_action_esp" "ibv_cmd_modify_qp" "ibv_cmd_modify_qp_ex"
        "ibv_cmd_modify_srq" "ibv_cmd_modify_wq" "ibv_cmd_open_qp" "ibv_cmd_open_xrcd"
        "ibv_cmd_post_recv" "ibv_cmd_post_send" "ibv_cmd_post_srq_recv" "ibv_cmd_query_context"
        "ibv_cmd_query_device_any" "ibv_cmd_query_mr" "ibv_cmd_query_port" "ibv_cmd_query_qp"
        "ibv_cmd_query_srq" "ibv_cmd_read_counters" "ibv_cmd_reg_dm_mr" "ibv_cmd_reg_dmabuf_mr"
        "ibv_cmd_reg_mr" "ibv_cmd_req_notify_cq" "ibv_cmd_rereg_mr"
        "ibv_cmd_resize_cq" => unsupported::code;
        "ibv_cmd_poll_cq" "ibv_read_ibdev_sysfs_file" => unsupported::count;
        "__ioctl_final_num_attrs" => unsupported::ioctl_final_num_attrs;
        "__verbs_log" "verbs_init_cq" "verbs_register_driver_34" "verbs_set_ops"
        "verbs_uninit_context" => unsupported::nothing;
        "_verbs_init_and_alloc_context" "verbs_open_device" => unsupported::object;
    }
}

// A variable, not a function: whether providers may destroy objects of a device that is gone.
global_asm!(
    ".pushsection .data",
    ".globl soft.allow_disassociate",
    ".type soft.allow_disassociate, @object",
    "soft.allow_disassociate: .byte 0",
    ".size soft.allow_disassociate, 1",
    ".symver soft.allow_disassociate, \
     verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34, remove",
    ".popsection",
);
